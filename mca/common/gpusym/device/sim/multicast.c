/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Multicast objects: addresses with nothing behind them, and a list of the members' memory.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mca/common/gpusym/device/multicast.h"
#include "mca/common/gpusym/device/sim/sim_internal.h"
#include "mca/common/gpusym/shm/fd.h"

/* In a memfd that all users of a multicast object map. */
struct mc_control {
    uint64_t size;
    uint32_t members;
    uint32_t added; /* atomic: GPUs that have been added, each by its own rank; never less */
    struct {
        uint32_t state; /* atomic, MEMBER_*; written by the rank that binds that member, and never set back */
        uint64_t offset;
        sim_handle_t memory; /* valid once state is MEMBER_BOUND */
    } member[GPUSYM_TEAM_MAX];
};
enum { MEMBER_FREE = 0, MEMBER_CLAIMED, MEMBER_BOUND };

struct gpusym_mc {
    sim_region_t *region; /* the multicast pointers; in the table until mc_free */
    struct mc_control *control;
    unsigned members;                      /* as control says; final */
    int fd;                                /* of the control memfd where it was made, else -1 */
    bool added;                            /* atomic: through this object */
    pthread_mutex_t lock;                  /* covers own and the making of member and alias */
    sim_region_t *own[GPUSYM_TEAM_MAX];    /* bound through this object: pinned */
    sim_region_t *member[GPUSYM_TEAM_MAX]; /* every member's memory, mapped here; not in the table */
    char *alias[GPUSYM_TEAM_MAX];          /* of the bound memory's start in them */
    bool complete;                         /* atomic: member and alias are there and final */
};

/* Lets go of all that a multicast object holds, its region apart. */
static void mc_release(sim_region_t *region)
{
    gpusym_mc_t *mc = region->mc;
    for (unsigned i = 0; i < GPUSYM_TEAM_MAX; i++) {
        if (NULL != mc->own[i]) {
            sim_region_unpin(mc->own[i]);
        }
        if (NULL != mc->member[i]) {
            sim_region_unpin(mc->member[i]);
        }
    }
    if (NULL != mc->control) {
        munmap(mc->control, sizeof(*mc->control));
    }
    if (mc->fd >= 0) {
        close(mc->fd);
    }
    pthread_mutex_destroy(&mc->lock);
    free(mc);
}

/* Makes an object around the control memfd fd, which it only maps; keep: the object also owns fd. */
static int mc_make(int fd, bool keep, unsigned members, size_t size, gpusym_mc_t **out)
{
    sim_region_t *region = sim_region_new(SIM_REGION_MULTICAST, size);
    gpusym_mc_t *mc = calloc(1, sizeof(*mc));
    if (NULL == region || NULL == mc) {
        free(region);
        free(mc);
        return sim_fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
    }
    pthread_mutex_init(&mc->lock, NULL);
    mc->region = region;
    mc->members = members;
    mc->fd = -1;
    region->mc = mc;
    region->release = mc_release;
    int rc = sim_region_reserve(region, false);
    if (GPUSYM_SUCCESS == rc) {
        void *control =
            mmap(NULL, sizeof(*mc->control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t) sim_page_size());
        mc->control = MAP_FAILED == control ? NULL : control;
        rc = MAP_FAILED == control ? sim_fail(GPUSYM_ERR_NO_MEMORY, "mmap: %s", strerror(errno))
                                   : sim_table_insert(region);
    }
    if (GPUSYM_SUCCESS != rc) {
        sim_region_unpin(region); /* and mc with it */
        return rc;
    }
    mc->fd = keep ? fd : -1;
    *out = mc;
    return GPUSYM_SUCCESS;
}

int sim_mc_create(gpusym_gpu_t *gpu, int setting, unsigned members, size_t size, gpusym_mc_t **out,
                  gpusym_handle_t *handle)
{
    sim_shared_id_t id;
    sim_handle_t ours;
    const char *why;
    int fd;
    if (!gpusym_multicast_allowed(setting, true, &why)) {
        return sim_fail(GPUSYM_ERR_NOT_AVAILABLE, "%s", why);
    }
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (sim_fault_due(SIM_FAULT_MULTICAST)) {
        return GPUSYM_ERR;
    }
    if (0 == members || members > GPUSYM_TEAM_MAX || 0 == size || size > sim.gpu.info.bytes) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "no multicast object for %u members of %zu bytes", members, size);
    }
    rc = sim_shared_create(SIM_MAGIC_MULTICAST, sizeof(struct mc_control), &id, &fd);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    gpusym_mc_t *mc;
    rc = mc_make(fd, true, members, size, &mc);
    if (GPUSYM_SUCCESS != rc) {
        close(fd);
        return rc;
    }
    mc->control->size = size;
    mc->control->members = members;
    sim_handle_put(&id, fd, &ours);
    memset(handle, 0, sizeof(*handle));
    memcpy(handle->bytes, &ours, sizeof(ours));
    *out = mc;
    return GPUSYM_SUCCESS;
}

int sim_mc_import(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, gpusym_mc_t **out)
{
    sim_handle_t ours;
    struct mc_control control;
    int fd;
    int rc = sim_gpu_check(gpu);
    if (GPUSYM_SUCCESS == rc && sim_fault_due(SIM_FAULT_MULTICAST)) {
        rc = GPUSYM_ERR;
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = sim_handle_get(handle, SIM_MAGIC_MULTICAST, &ours);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = sim_shared_open(&ours, &fd);
    }
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    ssize_t n;
    GPUSYM_RESTART(n, pread(fd, &control, sizeof(control), (off_t) sim_page_size()));
    if ((ssize_t) sizeof(control) != n || 0 == control.members || control.members > GPUSYM_TEAM_MAX ||
        0 == control.size || control.size > SIZE_MAX / 4) {
        rc = sim_fail(GPUSYM_ERR_UNREACHABLE, "the multicast object cannot be read");
    } else {
        rc = mc_make(fd, false, control.members, control.size, out);
    }
    close(fd);
    return rc;
}

int sim_mc_add(gpusym_mc_t *mc)
{
    if (sim_fault_due(SIM_FAULT_MULTICAST)) {
        return GPUSYM_ERR;
    }
    if (__atomic_exchange_n(&mc->added, true, __ATOMIC_ACQ_REL)) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "this GPU has been added to the multicast object already");
    }
    if (__atomic_add_fetch(&mc->control->added, 1, __ATOMIC_ACQ_REL) > mc->members) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "the multicast object is for %u GPUs, which have been added",
                        mc->members);
    }
    return GPUSYM_SUCCESS;
}

/* Publishes that member's memory in the control memfd. */
static int mc_publish(gpusym_mc_t *mc, unsigned member, const sim_region_t *region, size_t offset)
{
    uint32_t expected = MEMBER_FREE;
    if (!__atomic_compare_exchange_n(&mc->control->member[member].state, &expected, MEMBER_CLAIMED, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "member %u of the multicast object has its memory already", member);
    }
    mc->control->member[member].offset = offset;
    sim_handle_put(&region->id, region->fd, &mc->control->member[member].memory);
    __atomic_store_n(&mc->control->member[member].state, MEMBER_BOUND, __ATOMIC_RELEASE);
    return GPUSYM_SUCCESS;
}

int sim_mc_bind(gpusym_mc_t *mc, unsigned member, void *p, size_t size, void **mp)
{
    if (sim_fault_due(SIM_FAULT_BIND)) {
        return GPUSYM_ERR;
    }
    if (member >= mc->members || size != mc->region->size) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "member %u with %zu bytes, in a multicast object for %u members of %zu",
                        member, size, mc->members, mc->region->size);
    }
    /* A driver would wait for them. */
    const uint32_t added = __atomic_load_n(&mc->control->added, __ATOMIC_ACQUIRE);
    if (added < mc->members) {
        return sim_fail(GPUSYM_ERR_BAD_PARAM, "only %u of %u GPUs have been added to the multicast object", added,
                        mc->members);
    }
    sim_region_t *region = sim_table_pin(p);
    size_t offset = NULL == region ? 0 : (size_t) ((char *) p - region->base);
    int rc;
    const bool own = NULL != region && (SIM_REGION_OWN == region->kind || SIM_REGION_VMM == region->kind);
    if (!own || size > region->size - offset) {
        rc = sim_fail(GPUSYM_ERR_BAD_PARAM, "%p is not %zu bytes of this GPU's memory", p, size);
    } else {
        rc = mc_publish(mc, member, region, offset);
    }
    if (GPUSYM_SUCCESS != rc) {
        if (NULL != region) {
            sim_region_unpin(region);
        }
        return rc;
    }
    pthread_mutex_lock(&mc->lock);
    mc->own[member] = region; /* pinned until mc_free, as peers may not have mapped it yet */
    pthread_mutex_unlock(&mc->lock);
    *mp = mc->region->base;
    return GPUSYM_SUCCESS;
}

void sim_mc_free(gpusym_mc_t *mc)
{
    sim_table_remove(mc->region->base, SIM_REGION_MULTICAST);
}

/* Maps what is not mapped yet of the members' memory; the caller holds mc->lock. */
static int mc_complete(gpusym_mc_t *mc)
{
    for (unsigned i = 0; i < mc->members; i++) {
        if (NULL != mc->member[i]) {
            continue;
        }
        /* written by the rank that binds member i, in mc_publish */
        if (MEMBER_BOUND != __atomic_load_n(&mc->control->member[i].state, __ATOMIC_ACQUIRE)) {
            return sim_fail(GPUSYM_ERR_NOT_AVAILABLE, "member %u has not bound its memory to the multicast object", i);
        }
        sim_handle_t memory = mc->control->member[i].memory;
        uint64_t offset = mc->control->member[i].offset;
        if (memory.id.size > SIZE_MAX / 4 || offset > memory.id.size || mc->region->size > memory.id.size - offset) {
            return sim_fail(GPUSYM_ERR_UNREACHABLE, "member %u of the multicast object has too little memory", i);
        }
        int rc = sim_region_import(&memory, &mc->member[i]);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
        mc->alias[i] = mc->member[i]->alias + offset;
    }
    __atomic_store_n(&mc->complete, true, __ATOMIC_RELEASE);
    return GPUSYM_SUCCESS;
}

int gpusym_sim_mc_members(const void *mp, void **alias, unsigned max)
{
    sim_region_t *region = sim_table_pin(mp);
    if (NULL == region) {
        return 0;
    }
    gpusym_mc_t *mc = region->mc;
    int rc = NULL == mc ? 0 : (int) mc->members;
    if (NULL != mc && !__atomic_load_n(&mc->complete, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&mc->lock);
        int err = mc_complete(mc);
        pthread_mutex_unlock(&mc->lock);
        rc = GPUSYM_SUCCESS != err ? err : rc;
    }
    if (rc > 0 && (unsigned) rc > max) {
        rc = sim_fail(GPUSYM_ERR_BAD_PARAM, "the multicast object has more than %u members", max);
    }
    for (int i = 0; i < rc; i++) {
        alias[i] = mc->alias[i] + ((const char *) mp - region->base);
    }
    sim_region_unpin(region);
    return rc;
}
