/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the simulator's files share.  Only this folder includes it.
 *
 * Calls go one way: sim_device.c calls all others but program.c, which the program calls; both it and work.c call
 * stream.c; work.c and stream.c call item.c; item.c, memory.c and multicast.c call region.c; all call shared.c and
 * fault.c, which call state.c, which calls none.
 */
#ifndef GPUSYM_COMMON_DEVICE_SIM_INTERNAL_H
#define GPUSYM_COMMON_DEVICE_SIM_INTERNAL_H

#include <pthread.h>

#include "mca/common/gpusym/device/sim/sim.h"

#pragma GCC visibility push(hidden)

/* ---- state.c ---- */

struct gpusym_gpu {
    gpusym_gpu_info_t info;
};

typedef struct {
    pthread_mutex_t lock; /* open and close */
    bool opened;          /* atomic */
    bool host;            /* gpusym_sim_params.host, as it was at open() */
    bool used;            /* gpu_open has been called; atomic */
    struct gpusym_gpu gpu;
    char why[512]; /* why open() failed */
} sim_state_t;
extern sim_state_t sim;

/* Notes what went wrong for error() and returns code. */
__attribute__((format(printf, 2, 3))) int sim_fail(int code, const char *format, ...);
const char *sim_error(void);

/* GPUSYM_ERR_NOT_AVAILABLE: the simulator is not open; GPUSYM_ERR_BAD_PARAM: gpu is not its GPU. */
int sim_gpu_check(const gpusym_gpu_t *gpu);

/* Counts size bytes as allocated; false if the GPU has fewer free. sim_bytes_give ends that. */
bool sim_bytes_take(size_t size);
void sim_bytes_give(size_t size);
/* The peak counts from now on. */
void sim_peak_reset(void);

/* ---- fault.c ---- */

/* The faults that can be injected: an enumerator, and the word of gpusym_sim_params.fail. */
#define SIM_FAULTS(X)       \
    X(ALLOC, alloc)         \
    X(IMPORT, import)       \
    X(EXPORT, export)       \
    X(BIND, bind)           \
    X(MULTICAST, multicast) \
    X(LAUNCH, launch)       \
    X(CLUSTER, cluster)     \
    X(GRAPH, graph)         \
    X(HOSTALLOC, hostalloc) \
    X(COPY, copy)           \
    X(STREAM, stream)       \
    X(OPEN, open)           \
    X(HANG, hang)           \
    X(DOORBELL, doorbell)   \
    X(ENTRY, entry)         \
    X(STALL, stall)         \
    X(FREEZE, freeze)       \
    X(SWITCH, switch)

typedef enum {
#define X(id, word) SIM_FAULT_##id,
    SIM_FAULTS(X)
#undef X
        SIM_FAULT_KINDS,
    SIM_FAULTS_OF_ERROR = SIM_FAULT_HANG, /* those below it are calls that return an error */
} sim_fault_t;

/* Reads gpusym_sim_params.fail; GPUSYM_ERR_BAD_PARAM with sim.why for a bad part. */
int sim_faults_parse(const char *spec);
/* Counts an event; true, with the error noted, if it is to fail. */
bool sim_fault_due(sim_fault_t kind);
/* Since gpusym_sim_break(); the error is noted then. */
bool sim_broken(void);

/* Checks gpusym_sim_params.links; GPUSYM_ERR_BAD_PARAM with sim.why for a bad part. */
int sim_links_check(void);
/* The class of the link between our GPU and number `other`; the last part that names both counts. */
int sim_link_class(int32_t other);
/* Whether that link changes a byte of what copies bring or take. */
bool sim_link_spoils(int32_t other);

/* ---- shared.c ---- */

/* What a memfd is, in its first page (which no program sees) and in every handle to it. */
typedef struct {
    char magic[8];     /* SIM_MAGIC_* */
    uint64_t size;     /* bytes after the first page */
    uint8_t nonce[16]; /* random: tells a descriptor of the wrong process from the right one */
} sim_shared_id_t;

#define SIM_MAGIC_MEMORY "gpusymM1"
#define SIM_MAGIC_VMM "gpusymV1" /* memory that peers fetch the descriptor of, as they must of a GPU's */
#define SIM_MAGIC_MULTICAST "gpusymC1"

/* What a gpusym_handle_t holds. */
typedef struct {
    sim_shared_id_t id;
    int32_t pid; /* the process that has it open, */
    int32_t fd;  /* and its descriptor there */
    int32_t gpu; /* whose memory it is: its number */
} sim_handle_t;
_Static_assert(sizeof(sim_handle_t) <= sizeof(gpusym_handle_t), "a handle must hold the simulator's");

size_t sim_page_size(void);
/* size, rounded up to whole units. */
size_t sim_round_up(size_t size, size_t unit);

/* Makes a memfd for size zeroed bytes, of a size that cannot be changed, which only this user can open. Fills id. */
int sim_shared_create(const char *magic, size_t size, sim_shared_id_t *id, int *fd);
/* Opens the memfd that a handle names. GPUSYM_ERR_UNREACHABLE: it is gone, or another one. */
int sim_shared_open(const sim_handle_t *handle, int *fd);
bool sim_is_vmm(const sim_shared_id_t *id);

/* A handle to the memfd that is open here as fd. */
void sim_handle_put(const sim_shared_id_t *id, int fd, sim_handle_t *handle);
/* The contents of a handle that came from outside; GPUSYM_ERR_BAD_PARAM if it is not of that magic: of
 * SIM_MAGIC_MEMORY, of any memory. */
int sim_handle_get(const gpusym_handle_t *from, const char *magic, sim_handle_t *handle);

/* ---- region.c ---- */

typedef enum {
    SIM_REGION_OWN,
    SIM_REGION_VMM,
    SIM_REGION_POOL, /* of the GPU too, but no peer maps it */
    SIM_REGION_IMPORTED,
    SIM_REGION_HOST,
    SIM_REGION_REGISTERED, /* host memory of the program's, which it frees itself */
    SIM_REGION_MANAGED,
    SIM_REGION_MULTICAST
} sim_region_kind_t;

/*
 * A range of memory that the simulator knows.  Freed with its last pin: the table pins it while the
 * memory is allocated, and so does queued work, so that freeing memory under running work is as
 * harmless as it is on a GPU, where a free waits for the work.
 */
typedef struct sim_region {
    sim_region_kind_t kind;
    unsigned pins;   /* atomic */
    uint64_t number; /* of all regions of this process, from 1; never used twice, not even after close and open */
    char *base;      /* what the program sees */
    size_t size;
    char *alias;     /* the same for the CPU; base for host, registered and managed memory, NULL for multicast */
    bool placed;     /* base lies in addresses of sim_vmm_reserve(), and is not in map */
    char *map;       /* what to unmap, NULL if nothing */
    size_t map_size; /* of map */
    bool spoils;     /* of SIM_REGION_IMPORTED: copies from and to it change a byte */
    int fd;          /* memfd of SIM_REGION_OWN, _VMM and _POOL, else -1 */
    sim_shared_id_t id;
    /* Of SIM_REGION_MULTICAST, else NULL: */
    gpusym_mc_t *mc;
    void (*release)(struct sim_region *region); /* releases mc, when the region goes */
} sim_region_t;

/* Pinned once. NULL: out of memory. */
sim_region_t *sim_region_new(sim_region_kind_t kind, size_t size);
void sim_region_unpin(sim_region_t *region);
/* Reserves addresses for a region: its pages (unless it has been placed), and with alias as many again for that, each
 * with an inaccessible page behind it. */
int sim_region_reserve(sim_region_t *region, bool alias);
/* Maps the contents of fd as device memory. */
int sim_region_map(sim_region_t *region, int fd);
/* Maps a peer's memory; *out is pinned once, and in no table. */
int sim_region_import(const sim_handle_t *handle, sim_region_t **out);

/* Puts a region in the table, which owns its pin from now on. */
int sim_table_insert(sim_region_t *region);
/* Takes the region of that kind that starts at base out and unpins it. GPUSYM_ERR_BAD_PARAM: there is none. */
int sim_table_remove(const void *base, sim_region_kind_t kind);
/* The region that p lies in, pinned; NULL: none. */
sim_region_t *sim_table_pin(const void *p);
/* Takes everything out. */
void sim_table_clear(void);

/* How a pointer may be reached besides device, managed and pinned memory. */
#define SIM_REACH_HOST 1u      /* ordinary host memory is fine: a copy, not a kernel */
#define SIM_REACH_MULTICAST 2u /* multicast pointers are fine, and are not translated: a kernel, not a copy */

/* *at: where the CPU finds the size bytes that p points to; *pin: what has to be unpinned after use, or NULL. */
int sim_reach(const void *p, size_t size, unsigned how, void **at, sim_region_t **pin);

void sim_query(const void *p, gpusym_mem_t *mem);
int sim_mem_range(const void *p, gpusym_range_t *range);

/* ---- memory.c ---- */

int sim_mem_alloc(gpusym_gpu_t *gpu, size_t size, void **p);
int sim_mem_free(gpusym_gpu_t *gpu, void *p);
int sim_mem_zero(gpusym_gpu_t *gpu, void *p, size_t size);
int sim_vmm_reserve(gpusym_gpu_t *gpu, size_t *size, unsigned n, void **at);
int sim_vmm_release(gpusym_gpu_t *gpu, void *at, size_t size, unsigned n);
int sim_vmm_map(gpusym_gpu_t *gpu, void *at, size_t size);
int sim_vmm_unmap(gpusym_gpu_t *gpu, void *at, size_t size);
int sim_mem_export(gpusym_gpu_t *gpu, void *p, gpusym_handle_t *handle);
int sim_mem_unexport(gpusym_gpu_t *gpu, const gpusym_handle_t *handle);
int sim_mem_import(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, void **p);
int sim_mem_unimport(gpusym_gpu_t *gpu, void *p);
int sim_host_alloc(gpusym_gpu_t *gpu, size_t size, void **host, void **dev);
int sim_host_free(gpusym_gpu_t *gpu, void *host);
int sim_host_register(gpusym_gpu_t *gpu, void *host, size_t size, void **dev);
int sim_host_unregister(gpusym_gpu_t *gpu, void *host);

/* ---- item.c ---- */

/* A place in the work of a stream: what an event stands for between two of its records. Freed with its last keeper. */
typedef struct sim_mark sim_mark_t;
/* Kept once. NULL: out of memory. */
sim_mark_t *sim_mark_new(void);
void sim_mark_keep(sim_mark_t *mark);
void sim_mark_drop(sim_mark_t *mark);
bool sim_mark_reached(const sim_mark_t *mark);

/* A pause in a wait, after so many tries. */
void sim_nap(unsigned tries);

/* Flags of an item. */
#define SIM_FLAGS_MAX 8

/* Something that a stream is asked for; queued, its pointers are translated, and what they point into is pinned. */
typedef struct {
    enum {
        SIM_ITEM_KERNEL,
        SIM_ITEM_COPY,
        SIM_ITEM_COPY2D,
        SIM_ITEM_CALL,
        SIM_ITEM_NOTHING,
        SIM_ITEM_STALL,
        /* From here on what is no work: gpusym_sim_params.delay does not count for it. */
        SIM_ITEM_FLAGS,
        SIM_ITEM_RECORD,
        SIM_ITEM_WAIT,
    } what;
    unsigned kernel;
    gpusym_work_t work;
    void *dst;
    const void *src;
    size_t size; /* of a copy, or of a row of one */
    size_t dpitch, spitch, rows;
    bool spoils; /* of SIM_ITEM_COPY: changes a byte */
    gpusym_stream_flag_t flag[SIM_FLAGS_MAX];
    unsigned nflags;
    void (*function)(void *argument); /* CALL */
    void *argument;
    sim_mark_t *mark; /* RECORD, WAIT: kept; else NULL */
    unsigned npins;
    /* peer, peer_in, peer_out; in, out, done, abort, mc, doorbell; a leader's two */
    sim_region_t *pin[3 * GPUSYM_TEAM_MAX + 8];
} sim_item_t;

/* Makes *item of what was asked for, now that it is to run: faults count here. Translates its pointers, and pins what
 * they point into, until sim_item_unpin(). After an error nothing is pinned. */
int sim_item_prepare(sim_item_t *item, const sim_item_t *asked);

/* Runs it. quit (atomic): of its stream; waits for flags end with it too. NULL: it is of no stream. */
void sim_item_run(const sim_item_t *item, const bool *quit);
void sim_item_unpin(sim_item_t *item);

/* gpusym_kernel_sim_reach: the address by which a resident kernel reaches p. Its callers wait for the kernel, so
 * nothing is pinned. NULL: of a command, the kernel retires, as it does when its time runs out just then. */
void *sim_kernel_reach(const void *p);

/* ---- stream.c ---- */

/* What was queued on a stream while it was captured, as it was asked for. */
struct gpusym_sim_graph {
    sim_item_t *item; /* n of them */
    unsigned n, room;
};

int sim_stream_create(gpusym_gpu_t *gpu, gpusym_stream_t **out);
void sim_stream_destroy(gpusym_stream_t *stream);
int sim_stream_poll(gpusym_stream_t *stream);
int sim_stream_wrap(gpusym_gpu_t *gpu, void *handle, gpusym_stream_t **stream);
void sim_stream_unwrap(gpusym_stream_t *stream);
int sim_stream_captured(gpusym_stream_t *stream, bool *captured);
/* GPUSYM_ERR_BAD_PARAM: it is no stream of this process, or destroyed. */
int sim_stream_check(const gpusym_stream_t *stream);
/* Prepares and queues n items, in order and with nothing between them, or none if one cannot be. On a stream that is
 * being captured: adds them to its graph as they are. */
int sim_stream_queue(gpusym_stream_t *stream, const sim_item_t *asked, unsigned n);
/* Begins a capture, and ends it: the caller owns *graph. GPUSYM_ERR_BAD_PARAM: there is one, or none; GPUSYM_ERR: it
 * has ended, and is invalid. */
int sim_stream_capture(gpusym_stream_t *stream);
int sim_stream_capture_end(gpusym_stream_t *stream, gpusym_sim_graph_t **graph);
/* Destroys all streams, once their queues are empty. */
void sim_streams_close(void);

/* ---- work.c ---- */

int sim_launch(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w);
int sim_graph_launch(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w);
void sim_graph_destroy(gpusym_graph_t *graph);
int sim_copy(gpusym_gpu_t *gpu, void *dst, const void *src, size_t size);
int sim_copy_async(gpusym_stream_t *stream, void *dst, const void *src, size_t size);
int sim_copy2d_async(gpusym_stream_t *stream, void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                     size_t height);
int sim_stream_flags(gpusym_stream_t *stream, const gpusym_stream_flag_t *flags, unsigned n);

/* ---- multicast.c ---- */

int sim_mc_create(gpusym_gpu_t *gpu, int setting, unsigned members, size_t size, gpusym_mc_t **out,
                  gpusym_handle_t *handle);
int sim_mc_import(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, gpusym_mc_t **out);
int sim_mc_add(gpusym_mc_t *mc);
int sim_mc_bind(gpusym_mc_t *mc, unsigned member, void *p, size_t size, void **mp);
void sim_mc_free(gpusym_mc_t *mc);

#pragma GCC visibility pop

#endif
