/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Resident kernels: which calls they serve, for how long one waits for the next call, and when they are not worth it.
 * kernels/symm/resident.h has the kernels.  Pure C, no MPI, no CUDA.
 */
#ifndef GPUSYM_TUNING_RESIDENT_H
#define GPUSYM_TUNING_RESIDENT_H

#include <stdbool.h>
#include <stdint.h>

/* How long a kernel waits for the next call, in microseconds (0: not at all); the largest message in bytes that one of
 * so many blocks, 1 or GPUSYM_CLUSTER_BLOCKS, serves; and the threads of a block. */
uint32_t gpusym_tuning_linger_us(bool simulated);
uint64_t gpusym_tuning_resident_max(uint32_t nranks, uint32_t blocks);
/* Blocks of one for messages, or segments, of so many bytes, which is at most that. family: of kernels that can be
 * resident; clusters: whether blocks can be a cluster. */
uint32_t gpusym_tuning_resident_blocks(unsigned family, uint32_t nranks, uint64_t bytes, bool clusters);
uint32_t gpusym_tuning_resident_threads(void);

/* The limits of resident kernels. Only GPUSYM_RESIDENT_GAIN_NS has been measured. */
enum {
    /* Calls that one kernel serves. Then it is launched anew, so that work that waits for all of the GPU's kernels to
     * end (cudaFree of another thread), or is queued behind it, waits no longer than for these, even if the program
     * never pauses. They share the cost of the launch. */
    GPUSYM_RESIDENT_SERVED_MAX = 256,
    /* Resident kernels of a process, of all communicators. Each may be a block that waits, and the GPU's hardware
     * queues (8, unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise) are the program's too; a program may have thousands
     * of communicators. */
    GPUSYM_RESIDENT_MAX = 4,
    /* What a call saves that a resident kernel serves, in nanoseconds: 8.9 us by a launch, 5.0 without (8 bytes on
     * 2 x H200). */
    GPUSYM_RESIDENT_GAIN_NS = 3900,
    /* After so many kernels in a row that were not worth it, so many calls go without, twice as many each further time,
     * up to the most. */
    GPUSYM_RESIDENT_MISSES = 2,
    GPUSYM_RESIDENT_SKIP_FIRST = 64,
    GPUSYM_RESIDENT_SKIP_MOST = 4096,
    /* After so many that were not worth it, but did not cause the pauses, that is tested anew. */
    GPUSYM_RESIDENT_EXCUSED = 16,
    /* Calls that all ranks have waited for at once, after which none is launched early. */
    GPUSYM_EARLY_WAITS = 4,
    /* Bytes of a segment from which on a call that is not waited for at once is launched early, and not served by a
     * resident kernel: that gets its command when all ranks have posted, which takes a call of MPI, and no part of it
     * is done meanwhile. 8 KiB by an all-gather, beside as much computation: 7.7 us more than that by a command, 7.1 by
     * a launch; 16 KiB 10.7 and 6.5 (2 x H200). All-reduce gets its command at the post. */
    GPUSYM_EARLY_MIN = 8192,
    /* The frequency of pauses is taken from about so many calls. */
    GPUSYM_RESIDENT_RECENT = 128,
};

/*
 * Whether resident kernels are worth it for a communicator, where the user has not set how long they linger. A kernel
 * costs the program up to that time if the program waits for its GPU behind the kernel's last call, which the library
 * cannot see. So a kernel that expires should have saved as much before; if not, calls go without for a while. Where
 * these have pauses as long, at least half as often, the kernel is not the cause of them, and kernels that serve any
 * call go on: that is tested again now and then, since programs change. A kernel that made place for another should
 * have been worth it too. Zeroed before its first use.
 */
typedef struct {
    uint32_t misses;                  /* kernels in a row that were not worth it, since calls went without */
    uint32_t skip;                    /* calls that will go without */
    uint32_t skips;                   /* how often they have, since a kernel was worth it */
    uint32_t calls, pauses;           /* of resident kernels: calls; pauses behind which they expired */
    uint32_t skipped, skipped_pauses; /* calls that went without; pauses of at least the same length before them */
    uint64_t skipped_ns;              /* when the last of these began; 0: it was not the call before */
    uint32_t excused; /* kernels that were not worth it, but did not cause the pauses: since this was found */
} gpusym_tuning_resident_t;

/* Why a kernel has ended: retired by the host; retired to make place for another; expired, since no call came in
 * time. */
enum gpusym_resident_end { GPUSYM_RESIDENT_RETIRED, GPUSYM_RESIDENT_DISPLACED, GPUSYM_RESIDENT_EXPIRED };

/* Before a launch at time now_ns: whether its kernel may become resident, and linger for linger_ns. */
bool gpusym_tuning_resident_allow(gpusym_tuning_resident_t *s, uint64_t linger_ns, uint64_t now_ns);
/* A kernel has ended that lingered for linger_ns and has served so many calls beside the one that it was launched
 * for. */
void gpusym_tuning_resident_ended(gpusym_tuning_resident_t *s, uint32_t served, uint64_t linger_ns,
                                  enum gpusym_resident_end why);
/* The next calls go without. */
void gpusym_tuning_resident_skip(gpusym_tuning_resident_t *s);

/*
 * Whether kernels are launched when a rank posts a call, before it knows of its peers. One that retires because they do
 * not come has been launched for nothing; so they come only if all ranks do it. After GPUSYM_RESIDENT_MISSES calls in a
 * row for which a rank's kernel was launched for nothing, calls go without, as above; and where all ranks have waited
 * for GPUSYM_EARLY_WAITS calls at once, until one does not: a kernel that is launched early takes some 3 us longer.
 * Alike on all ranks, which tell each other what has happened. Zeroed before its first use.
 */
typedef struct {
    uint32_t misses, skip, skips; /* as above */
    uint32_t waits;               /* calls in a row that all ranks waited for at once */
} gpusym_tuning_early_t;

/* What some rank tells of the last call: its kernel was launched early; and for nothing; the call was not blocking, and
 * the program did something else meanwhile, or waited at once. */
typedef struct {
    bool early, left, overlaps, waits;
} gpusym_tuning_told_t;

static inline bool gpusym_tuning_early_allow(const gpusym_tuning_early_t *e)
{
    return 0 == e->skip && e->waits < GPUSYM_EARLY_WAITS;
}
/* Once a call. */
void gpusym_tuning_early_told(gpusym_tuning_early_t *e, const gpusym_tuning_told_t *told);

#endif
