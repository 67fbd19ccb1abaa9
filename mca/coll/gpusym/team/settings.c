/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The settings of a communicator: see team/settings.h.
 */
#include "mca/coll/gpusym/team/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/team/exchange.h"

/* ---- wishes ---- */

void coll_gpusym_wish_set(coll_gpusym_wish_t **newest, bool in_flight, unsigned key, int value)
{
    coll_gpusym_wish_t *w = *newest;

    const bool taken = NULL != w && (w->posted || in_flight);

    if (NULL != w && w->settings.value[key] == value && (!taken || w->compared)) {
        return; /* else it may be taken back yet */
    }
    if (NULL == w || taken) {
        w = calloc(1, sizeof *w);
        if (NULL == w) {
            return; /* as if the program had not set it */
        }
        coll_gpusym_settings_clear(&w->settings);
        w->number = COLL_GPUSYM_WISH_NONE + 1;
        if (NULL != *newest) {
            w->settings = (*newest)->settings;
            w->number = (uint16_t) (UINT16_MAX == (*newest)->number ? w->number : (*newest)->number + 1);
        }
        w->older = *newest;
        *newest = w;
    }
    w->settings.value[key] = value;
}

void coll_gpusym_wishes_free(coll_gpusym_wish_t *w)
{
    while (NULL != w) {
        coll_gpusym_wish_t *older = w->older;
        free(w);
        w = older;
    }
}

static coll_gpusym_wish_t *find_wish(coll_gpusym_wish_t *w, uint16_t number)
{
    while (NULL != w && w->number != number) {
        w = w->older;
    }
    return w;
}

/* ---- agreement ---- */

bool coll_gpusym_settings_wanted(const coll_gpusym_team_t *t, coll_gpusym_wish_t *newest, uint16_t *number)
{
    *number = 0 == *number ? newest->number : *number;
    newest->posted = newest->posted || *number == newest->number;
    return COLL_GPUSYM_WISH_NONE != *number && *number != t->settled;
}

/* Adds what a rank wants: "0: ring_ll, 1: not set". */
static void list_rank(char *text, size_t size, uint32_t rank, const char *value)
{
    const size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%u: %s", 0 == used ? "" : ", ", rank, NULL != value ? value : "not set");
}

/* Reports the first key of which the ranks want different values, by rank 0. False: there is none. */
static bool find_difference(const coll_gpusym_team_t *t, const coll_gpusym_settings_t *all)
{
    char name[GPUSYM_COMM_LABEL_MAX], key_name[64], ranks[512] = "", before[64];

    for (unsigned key = 0; key < COLL_GPUSYM_KEYS; key++) {
        uint32_t r = 1;
        while (r < t->host.nranks && all[r].value[key] == all[0].value[key]) {
            r++;
        }
        if (r == t->host.nranks) {
            continue;
        }
        for (r = 0; 0 == t->host.rank && r < t->host.nranks; r++) {
            list_rank(ranks, sizeof ranks, r, coll_gpusym_key_text(key, all[r].value[key]));
        }
        if (0 == t->host.rank) {
            const char *holds = coll_gpusym_key_text(key, coll_gpusym_setting(t, key, COLL_GPUSYM_UNSET));
            snprintf(before, sizeof before, "%s", NULL != holds ? holds : "not set");
            coll_gpusym_help("other-settings", gpusym_comm_label(t->fallback->comm, name, sizeof name),
                             coll_gpusym_key_name(key, key_name, sizeof key_name), ranks, before);
        }
        return true;
    }
    return false;
}

/* The ranks have different wishes: this one gets what holds, and so does MPI_Comm_get_info, unless the program has set
 * something else since. */
static void take_back(const coll_gpusym_team_t *t, coll_gpusym_wish_t *newest, coll_gpusym_wish_t *w)
{
    char name[64];

    for (unsigned key = 0; NULL != w && key < COLL_GPUSYM_KEYS; key++) {
        const int holds = coll_gpusym_setting(t, key, COLL_GPUSYM_UNSET);
        if (w->settings.value[key] == holds) {
            continue;
        }
        if (newest->settings.value[key] == w->settings.value[key]) {
            gpusym_comm_keep_info(t->fallback->comm, coll_gpusym_key_name(key, name, sizeof name),
                                  coll_gpusym_key_text(key, holds));
        }
        w->settings.value[key] = holds;
    }
}

static void tell_settings(const coll_gpusym_team_t *t)
{
    char name[GPUSYM_COMM_LABEL_MAX], key_name[64];

    for (unsigned key = 0; key < COLL_GPUSYM_KEYS; key++) {
        if (COLL_GPUSYM_UNSET != t->settings.value[key]) {
            GPUSYM_LOG(2, "%s: rank %u: %s=%s", gpusym_comm_label(t->fallback->comm, name, sizeof name),
                       coll_gpusym_team_rank(t), coll_gpusym_key_name(key, key_name, sizeof key_name),
                       coll_gpusym_key_text(key, t->settings.value[key]));
        }
    }
}

static void tell_ignored(const coll_gpusym_team_t *t, const char *why)
{
    char name[GPUSYM_COMM_LABEL_MAX];

    GPUSYM_LOG(2, "%s: rank %u: its settings do not hold: %s", gpusym_comm_label(t->fallback->comm, name, sizeof name),
               coll_gpusym_team_rank(t), why);
}

/* With the settings that all ranks want. */
static coll_gpusym_settings_state_t judge(coll_gpusym_team_t *t, coll_gpusym_wish_t *newest, uint16_t number)
{
    const coll_gpusym_settings_t *all = t->boot.all;
    coll_gpusym_wish_t *w = find_wish(newest, number);
    coll_gpusym_settings_state_t state = COLL_GPUSYM_SETTINGS_SAME;

    if (find_difference(t, all)) {
        take_back(t, newest, w);
    } else if (!t->has_settings || 0 != memcmp(&t->settings, &all[0], sizeof t->settings)) {
        t->settings = all[0];
        t->has_settings = true;
        tell_settings(t);
        if (t->host.led) {
            tell_ignored(t, "ranks share GPUs (but for algorithms that are staged)");
        }
        state = COLL_GPUSYM_SETTINGS_CHANGED;
    }
    t->settled = number;
    if (NULL != w) { /* no call needs older ones any more */
        w->compared = true;
        coll_gpusym_wishes_free(w->older);
        w->older = NULL;
    }
    return state;
}

coll_gpusym_settings_state_t coll_gpusym_settings_compare(coll_gpusym_team_t *t, coll_gpusym_wish_t *newest,
                                                          uint16_t number)
{
    if (coll_gpusym_team_is_part(t)) {
        tell_ignored(t, "the communicator spans several islands");
        t->settled = number;
        return COLL_GPUSYM_SETTINGS_SAME;
    }
    if (NULL == t->boot.all) {
        const coll_gpusym_wish_t *w = find_wish(newest, number);
        if (!coll_gpusym_exchange_alloc(t, sizeof(coll_gpusym_settings_t))) {
            return COLL_GPUSYM_SETTINGS_FAILED;
        }
        coll_gpusym_settings_t *mine = t->boot.mine;
        coll_gpusym_settings_clear(mine);
        *mine = NULL != w ? w->settings : t->has_settings ? t->settings : *mine;
        if (MPI_SUCCESS != coll_gpusym_exchange_start(t, mine, t->boot.all, sizeof *mine)) {
            return COLL_GPUSYM_SETTINGS_FAILED;
        }
    }
    const int ended = coll_gpusym_exchange_poll(t);
    if (1 != ended) {
        return 0 == ended ? COLL_GPUSYM_SETTINGS_WAITING : COLL_GPUSYM_SETTINGS_FAILED;
    }
    const coll_gpusym_settings_state_t state = judge(t, newest, number);
    coll_gpusym_exchange_free(t);
    return state;
}
