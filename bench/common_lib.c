/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym_bench is linked with nothing of ours: it is installed where programs are, and works with the gpusym that
 * mpirun loads. Only the simulator's memory (test/mpi/mem.c) needs libmca_common_gpusym, and that very instance which
 * the component uses: these stand in for the library's functions, and find them in the process.
 */
#include <dlfcn.h>
#include <stddef.h>

#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/device/device.h"
#include "mca/common/gpusym/device/select.h"
#include "mca/common/gpusym/device/sim/sim.h"

/* mem.c writes it where no device is open; the component's own parameters count here, see gpusym_device(). */
gpusym_sim_params_t gpusym_sim_params;

/* NULL where gpusym is not loaded. */
static void *find(const char *name)
{
    void *library = dlopen("libmca_common_gpusym.so", RTLD_LAZY | RTLD_NOLOAD);
    void *function = NULL == library ? NULL : dlsym(library, name);

    if (NULL != library) {
        dlclose(library); /* the component holds it */
    }
    return function;
}

/* Opened as the component would. */
const gpusym_device_t *gpusym_device(void)
{
    const gpusym_device_t *(*need)(void);

    *(void **) &need = find("gpusym_device_need");
    return NULL == need ? NULL : need();
}

const gpusym_device_t *gpusym_device_select(gpusym_device_choice_t choice, const char **why)
{
    const gpusym_device_t *(*select)(gpusym_device_choice_t choice, const char **why);

    *(void **) &select = find("gpusym_device_select");
    if (NULL == select || NULL == gpusym_device()) {
        *why = "this mpirun has not loaded gpusym with it (--mca coll gpusym --mca coll_gpusym_device sim)";
        return NULL;
    }
    return select(choice, why);
}

#define STAND_IN(name, parameters, arguments)                                    \
    int name parameters                                                          \
    {                                                                            \
        int(*function) parameters;                                               \
                                                                                 \
        *(void **) &function = find(#name);                                      \
        return NULL == function ? GPUSYM_ERR_NOT_AVAILABLE : function arguments; \
    }
STAND_IN(gpusym_sim_vmm_alloc, (size_t size, void **p), (size, p))
STAND_IN(gpusym_sim_vmm_free, (void *p), (p))
STAND_IN(gpusym_sim_pool_alloc, (size_t size, void **p), (size, p))
STAND_IN(gpusym_sim_pool_free, (void *p), (p))
STAND_IN(gpusym_sim_managed_alloc, (size_t size, void **p), (size, p))
STAND_IN(gpusym_sim_managed_free, (void *p), (p))
STAND_IN(gpusym_sim_synchronize, (void), ())

void gpusym_sim_faults_hold(bool hold)
{
    void (*function)(bool hold);

    *(void **) &function = find("gpusym_sim_faults_hold");
    if (NULL != function) {
        function(hold);
    }
}
