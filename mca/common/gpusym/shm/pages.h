/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pages: the slab of host memory that a process shares with its peers on this host. A memfd: nothing is left behind, whoever
 * dies. The slab begins with a launch token; then come the area, which a process has for all of its peers, and the lines, one
 * per communicator. What is in a line is its user's (agree/line.h), but for its end.
 */
#ifndef GPUSYM_COMMON_SHM_PAGES_H
#define GPUSYM_COMMON_SHM_PAGES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mca/common/gpusym/common.h"

/* A process's slab as its peers know it: plain bytes, to be sent to them. */
typedef struct {
    uint64_t nonce[2]; /* random; also at the slab's start, so that a wrong one is noticed */
    int32_t pid, fd;
    uint64_t bytes;
} gpusym_pages_id_t;

/* A process whose slab is mapped here. Cached; lives until gpusym_pages_close. */
typedef struct gpusym_peer gpusym_peer_t;

/* Makes this process's slab. Idempotent, thread-safe. With errno where that fails. */
int gpusym_pages_open(gpusym_pages_id_t *id);
void gpusym_pages_close(void);

/* Bytes of a line, whole cache lines. */
#define GPUSYM_PAGES_LINE 2496u
/* The end of every line. */
typedef struct {
    uint64_t key;        /* its user's; 0: nobody uses the line (any more). Cleared when the line is freed or retired */
    uint64_t generation; /* which use of the line this is; changes when its owner retires it, and is never the same again */
} gpusym_line_end_t;

/* A line in our slab, zeroed but for its generation, which is not 0; at *off. GPUSYM_ERR_NO_MEMORY, GPUSYM_ERR_NOT_AVAILABLE:
 * there is no slab. Thread-safe. */
int gpusym_pages_alloc(uint64_t *off);
/* Gives a line back that no peer reads. Thread-safe. */
void gpusym_pages_free(uint64_t off);
/*
 * Gives a line back that peers may still read: it is handed out again once all of them have retired theirs. off: of our line;
 * line[nranks]: ours and theirs, line[rank] is ours; generation[nranks]: of these. Takes both arrays, which it will free().
 * Thread-safe.
 */
void gpusym_pages_retire(uint64_t off, uint32_t nranks, uint32_t rank, void **line, uint64_t *generation);
/* Our own line at off. */
void *gpusym_pages_line(uint64_t off);
/* Which use of a peer's line this is. To be read while the peer cannot have retired it. */
uint64_t gpusym_line_generation(const void *line);

/* Maps a peer of this host (once). GPUSYM_ERR_UNREACHABLE, with errno, if it cannot be: another host, user or pid
 * namespace, or no memory whose size is sealed. Our own id works. */
int gpusym_pages_peer(const gpusym_pages_id_t *id, gpusym_peer_t **peer);
/* Maps the slab of a process that has not told us of it. GPUSYM_ERR_NOT_AVAILABLE: it has none, it has not yet called a
 * collective of ours with others; GPUSYM_ERR_UNREACHABLE: that cannot be known. Some 100 us. */
int gpusym_pages_find(int32_t pid, gpusym_peer_t **peer);
const gpusym_pages_id_t *gpusym_peer_id(const gpusym_peer_t *peer);
int gpusym_peer_pid(const gpusym_peer_t *peer);
/* False once the process has ended (also while its parent has not yet noticed), and only then. About 1 us. */
bool gpusym_peer_alive(gpusym_peer_t *peer);

/* A peer's line; NULL: none can stand there. */
void *gpusym_peer_line(gpusym_peer_t *peer, uint64_t off);
/* Whether a line can stand at off, in any slab. */
bool gpusym_line_fits(uint64_t off);
/* How many lines a peer has handed out, freed ones too; and the i-th of them. */
uint64_t gpusym_peer_lines(const gpusym_peer_t *peer);
const void *gpusym_peer_line_at(const gpusym_peer_t *peer, uint64_t i);
/* The launch token of a process (agree/tokens.h): 0, or who holds it. */
uint64_t *gpusym_peer_token(gpusym_peer_t *peer);
/* A zeroed part of every slab, at a fixed place: what a process tells all of its peers (memory/reg.h). Ours, NULL before
 * gpusym_pages_open; a peer's. */
#define GPUSYM_PAGES_AREA 16384u
void *gpusym_pages_area(void);
void *gpusym_peer_area(gpusym_peer_t *peer);

#endif
