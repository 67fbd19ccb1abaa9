/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The state that a process has once, for all faces: the device, the symmetric heap and all that lies on them.  Every
 * face opens it; the last close frees it.
 */
#ifndef GPUSYM_COMMON_GPUSYM_H
#define GPUSYM_COMMON_GPUSYM_H

#include "mca/common/gpusym/device/cuda/legacy.h"
#include "mca/common/gpusym/device/select.h"
#include "mca/common/gpusym/memory/heap.h"
#include "mca/common/gpusym/log.h"

/* How point-to-point messages of device memory are served. */
typedef enum { GPUSYM_P2P_AUTO, GPUSYM_P2P_STAGED, GPUSYM_P2P_OFF } gpusym_p2p_t;

/* The configuration. Zeroes are valid: device auto, no zero copy, no heap. */
typedef struct {
    int device;                /* gpusym_device_choice_t */
    int verbose;               /* level of the lines (log.h) */
    double warn;               /* seconds after which a call tells which ranks it waits for; 0: never */
    unsigned long heap_size;   /* bytes of a slab of the symmetric heap */
    int heap_slabs;            /* slabs that it may have; 0: one */
    bool heap_vmm;             /* they lie on virtual memory, where the device has it */
    unsigned long pinned_max;  /* bytes of pinned host memory for messages and calls that go through the host */
    unsigned long scratch_max; /* bytes of GPU memory that are kept for packed data */
    int reg_limit;             /* the program's buffers that peers may have mapped at a time, at most GPUSYM_REG_MAX */
    bool map_small;            /* peers may map allocations that are part of a block of the driver's */
    bool wait_legacy_stream;   /* calls wait for the legacy stream */
    int p2p;                   /* gpusym_p2p_t, for the faces: those of messages, and those that serve without them */
    int multicast;             /* multicast objects, as gpusym_multicast_allowed() takes it */
    bool sim_host;             /* simulator: any buffer is device memory */
    int sim_gpus;              /* simulator: GPUs of a host; 0: one per process */
    bool sim_mps;              /* simulator: GPUs are shared by an MPS daemon */
    int sim_delay;             /* simulator: microseconds that work of streams takes at least */
    const char *sim_fail;      /* simulator: faults to inject; NULL: none */
    const char *sim_links;     /* simulator: link classes of pairs of GPUs; NULL: one NVLink each */
    int local_rank;            /* of this process on its host; -1: neither rank is known yet */
    int world_rank;            /* of this process in its MPI_COMM_WORLD */
    gpusym_log_print_t *print; /* takes log lines; NULL: stderr */
} gpusym_config_t;

/* Storage of the parameters that all faces share; mca/common/ompi/params.c registers them. Written while there is one
 * thread. */
extern gpusym_config_t gpusym_params;

/*
 * Opens the library for a face; each open needs a close. The first open's configuration holds until the last close; it
 * is copied, strings too. A later open may only raise the verbosity, and tell the ranks if they were not known. Touches
 * no device: gpusym_device_need does. GPUSYM_ERR_NO_MEMORY: it is not open. Any thread.
 */
int gpusym_open(const gpusym_config_t *config);
/* Closes the library for a face. The last close frees everything; nothing may be in flight then. */
void gpusym_close(void);

/* The device, for code that reads it at every call. Written once between first open and last close. */
typedef struct {
    const gpusym_device_t *dev; /* NULL: not selected yet, or there is none; read with acquire order */
    bool tried;                 /* the selection has been made; read with acquire order before relying on dev */
    bool none;                  /* the selection has found no device */
} gpusym_current_t;
extern gpusym_current_t gpusym_current;

/* Waits as gpusym_cuda_wait_legacy_stream says: for a request that is started again, without asking for its memory. */
static inline void gpusym_await_legacy_stream(const void *p)
{
    gpusym_mem_t mem;
    const gpusym_device_t *dev = __builtin_expect(gpusym_cuda_wait_legacy_stream, 0) ? gpusym_current.dev : NULL;
    if (NULL != dev) {
        dev->query(p, &mem);
    }
}

/* Returns the device. The first call selects it, by the configuration, and reports a missing device that the
 * configuration names to the user. NULL: there is none, or the library is not open or does not know the ranks, and none
 * has been selected. Any thread. */
const gpusym_device_t *gpusym_device_need(void);
/* Returns whether the configuration's device is there, as far as can be told before the ranks are known: a driver, or
 * the simulator. Does not start the driver, and reports nothing to the user. False: *why is a static text. Any thread.
 */
bool gpusym_device_there(const char **why);

/* Set and return whether a face serves MPI's collectives. Only then may MPI hand out GPU memory, since no other part of
 * MPI could use it. Set it while there is one thread. */
void gpusym_collectives_serve(bool serve);
bool gpusym_collectives_served(void);
/* Returns the device for memory that MPI hands out, as gpusym_device_need; NULL also if no collectives are served. */
const gpusym_device_t *gpusym_device_for_memory(void);

/* The reason why a process has no heap. */
typedef enum {
    GPUSYM_LACK_NOTHING = 0,
    GPUSYM_LACK_MEMORY,      /* of the GPU, or pinned, or a stream */
    GPUSYM_LACK_KERNELS,     /* none for this GPU */
    GPUSYM_LACK_DESCRIPTORS, /* no file descriptor is left */
    GPUSYM_LACK_OTHER_GPU,   /* the heap lies on another GPU */
} gpusym_lack_t;

/* Makes the heap of the process on gpu, at the first call; later calls return the same result until the last close. The
 * device must have been selected. Any thread. */
gpusym_lack_t gpusym_heap_need(gpusym_gpu_t *gpu);
/* Returns the heap, owned by the library; NULL: there is none yet. Any thread. */
gpusym_heap_t *gpusym_heap(void);

/* Releases the GPU memory that freed buffers of the program still hold, here and at peers (memory/reg.h), and multicast
 * objects of ended communicators that nobody uses any more. Call it when a communicator ends, before its line is
 * retired. May wait for work that runs on the GPU: no such work may wait for the caller. Any thread. */
void gpusym_sweep(void);

#endif
