/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The component in this process: see component.h.
 */
#include <dlfcn.h>

#include "api/component.h"
#include "api/raise.h"

typedef const gpusym_streams_t *(*offer_fn_t)(void);

/* gpusym_streams() of the library that the component is linked with; NULL: not loaded yet. That library is never
 * unloaded, so what was found once stays. */
static offer_fn_t find_offer(void)
{
    static offer_fn_t found; /* atomic */
    offer_fn_t offer = __atomic_load_n(&found, __ATOMIC_ACQUIRE);

    if (NULL == offer) {
        void *library = dlopen("libmca_common_gpusym.so", RTLD_LAZY | RTLD_NOLOAD);

        if (NULL != library) {
            *(void **) &offer = dlsym(library, "gpusym_streams");
            dlclose(library);
            __atomic_store_n(&found, offer, __ATOMIC_RELEASE);
        }
    }
    return offer;
}

const gpusym_streams_t *api_component(const char **why)
{
    const offer_fn_t offer = find_offer();
    const gpusym_streams_t *streams = NULL == offer ? NULL : offer();

    if (NULL == streams) {
        *why = "collectives on streams need gpusym, which is not in use here: run the program with "
               "mpirun --mca coll gpusym (--mca coll_gpusym_verbose 1 shows why it is not used)";
        return NULL;
    }
    if (GPUSYM_STREAMS_VERSION != streams->version || sizeof(*streams) != streams->bytes) {
        *why = "libgpusym and the gpusym that mpirun has loaded are of different versions: "
               "let the program find (LD_LIBRARY_PATH) the libgpusym.so that was installed with it";
        return NULL;
    }
    return streams;
}

int api_result(MPI_Comm comm, const gpusym_streams_t *streams, int rc)
{
    int error_class;

    if (MPI_SUCCESS == rc) {
        return rc;
    }
    MPI_Error_class(rc, &error_class);
    return api_raise(comm, error_class, streams->why());
}
