/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Makes "--mca coll gpusym" work.  Open MPI takes such a list literally: with nothing else in it
 * most collectives have no implementation and MPI_Init gives up.  So, when only gpusym is named,
 * we add to the framework's list the components that would have been there without a list.  A list
 * that names others too is the user's decision: it is left as it is, unless coll_gpusym_adopt is set.
 *
 * When: from our own open function, which the framework calls while it walks its list.  Earlier, at
 * registration, it would drop again whatever the user's list does not name.
 */
#include "mca/coll/gpusym/conf/adopt.h"

#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"

#include <string.h>

#include "opal/mca/base/mca_base_component_repository.h"
#include "opal/mca/base/mca_base_framework.h"

#include "mca/common/ompi/vars.h"

#define FRAMEWORK (&ompi_coll_base_framework)

static bool list_has(const char *list, const char *name)
{
    char item[MCA_BASE_MAX_COMPONENT_NAME_LEN + 1];

    while (gpusym_list_next(&list, item, sizeof(item))) {
        if (0 == strcmp(item, name)) {
            return true;
        }
    }
    return false;
}

/* Whether the user's list of coll components names gpusym and nothing else. */
static bool names_only_gpusym(const char *selection)
{
    char item[MCA_BASE_MAX_COMPONENT_NAME_LEN + 1];

    while (gpusym_list_next(&selection, item, sizeof(item))) {
        if (0 != strcmp(item, "gpusym")) {
            return false;
        }
    }
    return true;
}

static bool is_present(const char *name)
{
    const mca_base_component_list_item_t *item;

    OPAL_LIST_FOREACH(item, &FRAMEWORK->framework_components, mca_base_component_list_item_t)
    {
        if (0 == strcmp(item->cli_component->mca_component_name, name)) {
            return true;
        }
    }
    return false;
}

/* What coll_gpusym_adopt says of a component: "all", "none", "a,b" or "^a,b". */
static bool is_wanted(const char *adopt, const char *name)
{
    if (0 == strcmp(adopt, "all")) {
        return true;
    }
    if (0 == strcmp(adopt, "none")) {
        return false;
    }
    return '^' == adopt[0] ? !list_has(adopt + 1, name) : list_has(adopt, name);
}

/*
 * Registers and opens a component that is in no list, as the framework would, and puts it in front:
 * the framework is walking its list, and must not come to it again.  Takes the item.
 */
static void adopt_component(mca_base_component_list_item_t *item)
{
    const mca_base_component_t *c = item->cli_component;
    int ret = NULL == c->mca_register_component_params ? OPAL_SUCCESS : c->mca_register_component_params();

    if (OPAL_SUCCESS != ret) {
        GPUSYM_LOG(2, "not adopted: %s (its registration returned %d)", c->mca_component_name, ret);
        OBJ_RELEASE(item);
        return;
    }
    ret = NULL == c->mca_open_component ? OPAL_SUCCESS : c->mca_open_component();
    if (OPAL_SUCCESS != ret) {
        GPUSYM_LOG(2, "not adopted: %s (its open function returned %d)", c->mca_component_name, ret);
        mca_base_component_close(c, FRAMEWORK->framework_output);
        OBJ_RELEASE(item);
        return;
    }
    GPUSYM_LOG(2, "adopted: %s", c->mca_component_name);
    opal_list_prepend(&FRAMEWORK->framework_components, &item->super);
}

/* Components linked into Open MPI. */
static void adopt_static(const char *adopt)
{
    const mca_base_component_t *c;

    for (int i = 0; NULL != (c = gpusym_static_component(FRAMEWORK, i)); ++i) {
        mca_base_component_list_item_t *item;

        if (!is_wanted(adopt, c->mca_component_name) || is_present(c->mca_component_name)) {
            continue;
        }
        item = OBJ_NEW(mca_base_component_list_item_t);
        if (NULL != item) {
            item->cli_component = c;
            adopt_component(item);
        }
    }
}

/* Components in files of their own. */
static void adopt_dynamic(const char *adopt)
{
    opal_list_t *list = &FRAMEWORK->framework_components;
    mca_base_component_repository_item_t *file;
    opal_list_t *files = NULL;

    if (OPAL_SUCCESS != mca_base_component_repository_get_components(FRAMEWORK, &files) || NULL == files) {
        return;
    }
    OPAL_LIST_FOREACH(file, files, mca_base_component_repository_item_t)
    {
        opal_list_item_t *item;

        if (!is_wanted(adopt, file->ri_name) || is_present(file->ri_name)) {
            continue;
        }
        if (OPAL_SUCCESS != mca_base_component_repository_open(FRAMEWORK, file) || !is_present(file->ri_name)) {
            GPUSYM_LOG(2, "not adopted: %s (it cannot be loaded)", file->ri_name);
            continue;
        }
        item = opal_list_remove_last(list); /* where the repository has put it */
        adopt_component((mca_base_component_list_item_t *) item);
    }
}

/* Reports names in coll_gpusym_adopt that are no component. */
static void check_names(const char *adopt)
{
    char name[MCA_BASE_MAX_COMPONENT_NAME_LEN + 1];

    while (gpusym_list_next(&adopt, name, sizeof(name))) {
        if (!is_present(name)) {
            gpusym_var_refused("coll_gpusym_adopt", name,
                               "\"all\", \"none\", or coll components of this Open MPI (ompi_info lists them)",
                               "the other names of its list");
        }
    }
}

int coll_gpusym_adopt(void)
{
    const char *selection = FRAMEWORK->framework_selection;
    const char *adopt = coll_gpusym_params.adopt;

    if (NULL == selection || '\0' == selection[0] || '^' == selection[0]) {
        return OMPI_SUCCESS; /* no list, or one that leaves some out: the stock components are there */
    }
    if (NULL == adopt || '\0' == adopt[0]) {
        adopt = "all";
    }
    if (!names_only_gpusym(selection) && !coll_gpusym_params.adopt_set) {
        GPUSYM_LOG(2, "nothing adopted: the list of coll components (%s) names others than gpusym", selection);
        return OMPI_SUCCESS;
    }
    adopt_static(adopt);
    adopt_dynamic(adopt);
    if ('^' != adopt[0] && 0 != strcmp(adopt, "all") && 0 != strcmp(adopt, "none")) {
        check_names(adopt);
    }
    return OMPI_SUCCESS;
}
