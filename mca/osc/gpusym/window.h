/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A window of GPU memory: the parts of its ranks, and the page that its processes share.
 *
 * All processes of a host map the parts of each other when the window is created, where that can be (else: ask.h), and
 * a page, which has the words of locks, barriers and post, start, complete and wait. Between hosts messages do what the
 * page does (message.h). A process that waits runs Open MPI's progress, and looks from time to time whether the others
 * of its host live: the death of one ends all waits with MPI_ERR_OTHER, here and in every later call that waits.
 */
#ifndef OSC_GPUSYM_WINDOW_H
#define OSC_GPUSYM_WINDOW_H

#include "mca/common/ompi/face.h"

#include <pthread.h>

#include "ompi/communicator/communicator.h"
#include "ompi/mca/osc/base/base.h"
#include "ompi/mca/osc/osc.h"
#include "ompi/win/win.h"

#include "mca/common/gpusym/device/device.h"
#include "mca/common/gpusym/exec/copy.h"
#include "mca/common/gpusym/shm/pages.h"

#define OSC_GPUSYM_VERBOSE(...) \
    opal_output_verbose(1, ompi_osc_base_framework.framework_output, "osc:gpusym: " __VA_ARGS__)

/* Those that wait for something, in the order in which they come: the next ticket, and the one that has its turn.
 * Atomics. All 0: nobody waits. */
typedef struct {
    uint32_t ticket, serving;
} osc_gpusym_queue_t;

/* The words of a rank in the page: a cache line, of atomics. */
typedef struct {
    _Alignas(64) uint64_t lock;     /* passive target: the holder of the exclusive lock plus 1, << 32; or holders of
                                     * shared ones */
    osc_gpusym_queue_t lockers;     /* who asks for that lock while it is not to be had, or others wait */
    osc_gpusym_queue_t accumulates; /* the turn is the lock of accumulates to this rank */
    uint32_t barrier;               /* barriers that this rank has entered */
    uint32_t attached;              /* entries in use of what it has attached are below this one */
} osc_gpusym_words_t;

/* What origins request of a rank whose memory they do not reach, in the page (ask.h). */
#define OSC_GPUSYM_MAILBOX_BYTES 65536u
#define OSC_GPUSYM_MAILBOX_PIECES 512u
typedef struct {
    uint64_t at; /* from the rank's part on; in a dynamic window the address */
    uint64_t bytes;
} osc_gpusym_piece_t;
typedef struct {
    _Alignas(64) osc_gpusym_queue_t origins;
    _Alignas(64) uint32_t request; /* 0: none; set by the origin, cleared by the owner */
    uint32_t pieces;
    int32_t rc; /* MPI's class */
    osc_gpusym_piece_t piece[OSC_GPUSYM_MAILBOX_PIECES];
    char data[OSC_GPUSYM_MAILBOX_BYTES]; /* of all pieces, one behind the other */
} osc_gpusym_mailbox_t;

/* Memory that a rank has attached to a dynamic window, in the page (attach.h): atomics. */
#define OSC_GPUSYM_ATTACHED_MAX 4096u
typedef struct {
    uint32_t version;
    uint32_t flags;
    uint64_t base, bytes, off;
    uint32_t key; /* 0: peers cannot map it */
} osc_gpusym_attached_t;

/* The part of a rank. In a dynamic window it has no bytes. */
typedef struct {
    char *base; /* in this process; NULL: this process does not reach it, or it has no bytes */
    uint64_t bytes;
    uint64_t unit;          /* displacement unit, in bytes */
    bool gpu;               /* the CPU must not touch it */
    bool reached;           /* base may be used */
    bool near;              /* it shares the page; else it is reached by messages */
    bool here;              /* on this host, where its life is watched */
    void *share;            /* another process's segment, mapped here, of share_bytes; NULL: none */
    uint64_t share_bytes;   /* of it */
    gpusym_peer_t *process; /* NULL: this one, or one of another host */
    bool direct;            /* what is not reached may be copied by the kernel, without its owner (ask.h). Atomic */
    uint64_t address;       /* of its first byte, in its owner's process; 0: in a dynamic window */
} osc_gpusym_part_t;

/* A copy under way, in the list of its window. */
typedef struct osc_gpusym_copy {
    gpusym_copy_t copy;
    int target;
    struct osc_gpusym_copy *next;
} osc_gpusym_copy_t;

/* What a rank may do to one target, by a lock. */
typedef enum { OSC_GPUSYM_UNLOCKED, OSC_GPUSYM_SHARED, OSC_GPUSYM_EXCLUSIVE, OSC_GPUSYM_UNCHECKED } osc_gpusym_held_t;

/* A window. Open MPI keeps it as win->w_osc_module, until osc_free. */
typedef struct osc_gpusym_window {
    ompi_osc_base_module_t super;
    ompi_communicator_t *comm; /* a duplicate */
    uint32_t n, rank;
    const gpusym_device_t *dev;
    gpusym_gpu_t *gpu; /* copies */
    bool served;       /* false: calls that move data are refused, since a rank has no device, or shares no memory */
    bool dynamic;
    bool in_line; /* the parts follow each other, in memory of rank 0 */
    bool no_locks;
    bool asks; /* some rank does not reach some memory of its host, so that its owner is asked */

    /* This rank's memory. */
    void *memory;   /* allocated here; NULL: none, or the program's */
    uint64_t bytes; /* of it */
    bool pooled;    /* by gpusym_pool_alloc; else a segment of the part's share */
    gpusym_segment_id_t segment;
    uint32_t key; /* 0: not registered */

    osc_gpusym_part_t *part; /* [n] */

    /* The page of the ranks of a host, made by the first of them. Of other hosts' ranks nothing is used but the words
     * that are `posted` for a rank of this one. */
    uint32_t page_owner;
    gpusym_segment_id_t page_id;
    void *page; /* NULL: none */
    uint64_t page_bytes;
    osc_gpusym_words_t *words;       /* [n] */
    uint32_t *posted;                /* [target * n + origin]: exposure epochs that target has posted for origin */
    uint32_t *completed;             /* [target * n + origin]: access epochs that origin has completed at target */
    uint32_t *broken;                /* a rank has died: its number plus 1 */
    osc_gpusym_mailbox_t *mailbox;   /* [n] */
    osc_gpusym_attached_t *attached; /* [n * OSC_GPUSYM_ATTACHED_MAX] */

    /* Messages; NULL: the ranks are all of one host. */
    struct osc_gpusym_remote *remote; /* what this rank requests (remote.h) */
    struct osc_gpusym_serve *serve;   /* what is requested of it (serve.h) */
    uint32_t lost;                    /* a wait has ended with an error: messages may be under way for ever. Atomic */

    struct osc_gpusym_window *next_asked; /* in the list of windows that ask, or have messages */

    /* Epochs. `lock` guards them, the copies, and what this rank has attached. */
    pthread_mutex_t lock;
    osc_gpusym_copy_t *copies;
    int error;              /* of a copy that has ended; MPI's class */
    bool fence, fence_used; /* a fence permits access; there has been some */
    bool started;           /* an access epoch, by MPI_Win_start */
    osc_gpusym_held_t lock_all;
    bool exposed;             /* by MPI_Win_post */
    bool *in_start, *in_post; /* [n] */
    uint32_t *starts, *waits; /* [n]: epochs with that rank that have begun to access; that have been exposed */
    osc_gpusym_held_t *held;  /* [n] */
    bool *got;                /* [n]: locks, while MPI_Win_lock_all tries to get all */
    uint32_t nheld;

    /* What accumulates are combined with. `reducing` guards it. */
    pthread_mutex_t reducing;
    bool launches_tried;
    void *ticket; /* exec/job.h; NULL: there are no kernels, or none has been launched */
    uint32_t sm_count;
    bool combine_tried;
    struct gpusym_combine *combine; /* swap.h: pinned memory; NULL: there is none. Owned */
    void *combine_dev;              /* the same for the GPU */
} osc_gpusym_window_t;

static inline osc_gpusym_window_t *osc_gpusym_window(const struct ompi_win_t *win)
{
    return (osc_gpusym_window_t *) win->w_osc_module;
}

/* The kind of memory that a rank's part is to have. */
typedef enum { OSC_GPUSYM_GIVEN, OSC_GPUSYM_HOST, OSC_GPUSYM_GPU } osc_gpusym_memory_t;

/* Makes this rank's part of a window, of `bytes` bytes: the program's memory at given, or new memory. The caller ends
 * it by osc_gpusym_window_destroy. NULL, with a verbose line: there is no memory of that kind. */
osc_gpusym_window_t *osc_gpusym_window_create(osc_gpusym_memory_t kind, void *given, size_t bytes);
/* The same of a shared window, in memory of GPUs: each rank's part, or, unless each rank says `apart`, the parts of all
 * in the order of ranks, by rank 0. Collective over comm. *failed, alike on all ranks: not all ranks want GPU memory,
 * or one has none; *w is then NULL. MPI error code; *w is NULL too. */
int osc_gpusym_window_create_shared(ompi_communicator_t *comm, size_t bytes, bool wants, bool apart,
                                    osc_gpusym_window_t **w, bool *failed);
/* Collective over comm: duplicates it, and maps the page and the parts of the ranks of this host. MPI error code. Ranks
 * that do not reach some part of their host: the window `asks`. Sets *apart, alike on all ranks: they are of several
 * hosts. */
int osc_gpusym_window_join(osc_gpusym_window_t *w, ompi_communicator_t *comm, uint64_t unit, bool *apart);
/* Frees all of this rank. Peers may no longer use it. NULL: nothing happens. */
void osc_gpusym_window_destroy(osc_gpusym_window_t *w);

/* Sets *most, alike on all ranks, to the greatest of their numbers `mine`, which are not negative. Collective over
 * comm. MPI error code. */
int osc_gpusym_most(ompi_communicator_t *comm, int mine, int *most);
/* The same of whether `mine` is true on any rank. */
int osc_gpusym_any_rank(ompi_communicator_t *comm, bool mine, bool *answer);

/* Words of the page. The caller's rank is on the target's host. */
static inline uint32_t *osc_gpusym_word(const osc_gpusym_window_t *w, uint32_t *words, uint32_t target, uint32_t origin)
{
    return &words[(size_t) target * w->n + origin];
}
/* The lock of passive epochs: `holder` takes it, if it is to be had now; unless it may go `ahead`, also only if nobody
 * waits for it. Those that have their turn go ahead, and those that hold another lock (sync.h). */
bool osc_gpusym_try_lock(const osc_gpusym_window_t *w, uint32_t target, uint32_t holder, bool exclusive, bool ahead);
/* It is held as said; UNCHECKED: nothing happens. */
void osc_gpusym_release(const osc_gpusym_window_t *w, uint32_t target, osc_gpusym_held_t held);
/* Tickets have their turn in the order in which they are taken, and each must pass it on. */
uint32_t osc_gpusym_take_ticket(osc_gpusym_queue_t *q);
bool osc_gpusym_is_turn(const osc_gpusym_queue_t *q, uint32_t ticket);
void osc_gpusym_next_turn(osc_gpusym_queue_t *q);

#endif
