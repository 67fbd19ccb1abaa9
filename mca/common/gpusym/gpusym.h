/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a process has once, whatever faces use it: the device, the symmetric heap and all that lies on them. Opened by every
 * face, closed by the last one.
 */
#ifndef GPUSYM_COMMON_GPUSYM_H
#define GPUSYM_COMMON_GPUSYM_H

#include "mca/common/gpusym/device/select.h"
#include "mca/common/gpusym/memory/heap.h"
#include "mca/common/gpusym/log.h"

/* The configuration. Zeroes are a valid one: the device auto, no zero copy, no heap. */
typedef struct {
    int device;              /* gpusym_device_choice_t */
    int verbose;             /* level of the lines (log.h) */
    unsigned long heap_size; /* bytes of the symmetric heap */
    int reg_limit;           /* the program's buffers that peers may have mapped at a time, at most GPUSYM_REG_MAX */
    bool multicast;          /* allow multicast objects; the sites' vetoes come first */
    bool sim_host;           /* simulator: any buffer is device memory */
    int sim_gpus;            /* simulator: GPUs of a host; 0: one per process */
    const char *sim_fail;    /* simulator: faults to inject; NULL: none */
    const char *sim_links;   /* simulator: classes of links between GPUs; NULL: one NVLink each */
    int local_rank;          /* of this process on its host */
    int world_rank;          /* of this process in its MPI_COMM_WORLD */
    gpusym_log_print_t *print; /* prints lines; NULL: there are none */
    int stream;                /* its first argument */
} gpusym_config_t;

/* Storage of the parameters that all faces share; mca/common/ompi/params.c registers them. Written while there is one
 * thread. */
extern gpusym_config_t gpusym_params;

/*
 * Opens the library for a face; each open needs a close. The first open's configuration holds until the last close; it is
 * copied, strings too. A later open may only raise the verbosity. Touches no device: gpusym_device_need does.
 * GPUSYM_ERR_NO_MEMORY: it is not open. Any thread.
 */
int gpusym_open(const gpusym_config_t *config);
/* Ends a face's use. The last close frees all that the process has here; nothing may be in flight then. */
void gpusym_close(void);

/* The device, for those that read it at every call. Written once between first open and last close. */
typedef struct {
    const gpusym_device_t *dev; /* NULL: not looked for yet, or there is none; read with acquire order */
    bool looked;                /* it has been looked for; read with acquire order before dev is relied on */
    bool none;                  /* it has been looked for, and there is none */
} gpusym_current_t;
extern gpusym_current_t gpusym_current;

/* The device, looked for at the first call as the configuration says. NULL: there is none, or the library is not open and no
 * device has been selected. Tells the user where a device that the configuration names is missing. Any thread. */
const gpusym_device_t *gpusym_device_need(void);

/* Whether a face serves MPI's collectives: only then may MPI hand out GPU memory, since nothing else could take it.
 * Written while there is one thread. */
void gpusym_collectives_serve(bool serve);
bool gpusym_collectives_served(void);
/* The device for memory that MPI hands out, as gpusym_device_need; NULL also where no collectives are served. */
const gpusym_device_t *gpusym_device_for_memory(void);

/* What keeps a process from having a heap. */
typedef enum {
    GPUSYM_LACK_NOTHING = 0,
    GPUSYM_LACK_MEMORY,      /* of the GPU, or pinned, or a stream */
    GPUSYM_LACK_KERNELS,     /* none for this GPU */
    GPUSYM_LACK_DESCRIPTORS, /* no file descriptor is left */
    GPUSYM_LACK_OTHER_GPU,   /* the heap lies on another GPU */
} gpusym_lack_t;

/* The heap of the process, made on gpu at the first call. A failure is remembered until the last close. Needs the device. Any
 * thread. */
gpusym_lack_t gpusym_heap_need(gpusym_gpu_t *gpu);
/* The heap, or NULL: there is none yet. Any thread. */
gpusym_heap_t *gpusym_heap(void);

/* Gives back the GPU memory that freed buffers of the program keep, here and at peers (memory/reg.h); for the end of a
 * communicator. May wait for work that runs on the GPU: no such work may wait for the caller. Any thread. */
void gpusym_sweep(void);

#endif
