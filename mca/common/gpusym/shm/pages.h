/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Pages: the slab of host memory that a process shares with its peers on this host.  It is a memfd, of which nothing
 * remains when processes die.  The slab holds a launch token, areas for all peers of the process, lines, one per
 * communicator, and tables, of those communicators that need one.  The user of an area, of a line (agree/line.h) or of
 * a table (agree/table.h) defines its contents, except the end of a line.  The slab is sparse: only what was touched
 * takes memory.
 */
#ifndef GPUSYM_COMMON_SHM_PAGES_H
#define GPUSYM_COMMON_SHM_PAGES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "mca/common/gpusym/common.h"
#include "mca/common/gpusym/shm/segment.h"

/* Identifies the slab of a process to peers. Plain bytes, to be sent to them. */
typedef gpusym_segment_id_t gpusym_pages_id_t;

/* A process whose slab is mapped here. Cached; valid until gpusym_pages_close, which frees it. */
typedef struct gpusym_peer gpusym_peer_t;

/* Makes the slab of this process, and gets its id. Idempotent. Errors, with errno: GPUSYM_ERR_NOT_AVAILABLE,
 * GPUSYM_ERR_NO_MEMORY. Thread-safe. */
int gpusym_pages_open(gpusym_pages_id_t *id);
/* Frees the slab and all peers. No line may be in use. Idempotent. */
void gpusym_pages_close(void);

/* Size of a line in bytes: whole cache lines. */
#define GPUSYM_PAGES_LINE 2688u
/* The end of every line. */
typedef struct {
    uint64_t key;        /* its user's; 0: the line is not in use. Cleared when the line is freed or retired */
    uint64_t generation; /* identifies this use of the line; changes when the owner retires it, and never recurs */
} gpusym_line_end_t;

/* Allocates a line of this process's slab, at *off, zeroed except its generation, which is not 0. GPUSYM_ERR_NO_MEMORY;
 * GPUSYM_ERR_NOT_AVAILABLE: there is no slab. Thread-safe. */
int gpusym_pages_alloc(uint64_t *off);
/* Frees a line that no peer reads, except to find that it is gone: its key is 0 then, its generation changes.
 * Thread-safe. */
void gpusym_pages_free(uint64_t off);
/* Tables that belong to a line, at most. */
#define GPUSYM_LINE_TABLES 2
/*
 * Retires a line that peers may still read, and its tables: they are reused once all of them have retired theirs or
 * have ended, which is noticed within 10 ms.  off:
 * of our line; table[GPUSYM_LINE_TABLES]: of our tables, 0: none; line[nranks]: all ranks' lines, line[rank] is ours;
 * generation[nranks]: theirs.  Takes ownership of these two arrays and free()s them.  Thread-safe.
 */
void gpusym_pages_retire(uint64_t off, const uint64_t *table, uint32_t nranks, uint32_t rank, void **line,
                         uint64_t *generation);
/* Whether our line at off, which has been retired, is still in use: a peer that lives has not retired its own yet.
 * Thread-safe. */
bool gpusym_pages_is_in_use(uint64_t off);
/* Allocates a table of `bytes` bytes in this process's slab, at *off, not 0; zeroed, at a multiple of 64. It is freed
 * with its line, by gpusym_pages_retire(). GPUSYM_ERR_NO_MEMORY. Thread-safe. */
int gpusym_pages_alloc_table(uint64_t bytes, uint64_t *off);
/* Frees a table before its line, or one that belongs to none. Thread-safe. */
void gpusym_pages_free_table(uint64_t off);
/* Returns this process's line at off. */
void *gpusym_pages_line(uint64_t off);
/* Returns the generation of a line. For the first time, read it while the peer cannot have retired the line. */
uint64_t gpusym_line_generation(const void *line);

/* Maps the slab of a peer on this host, once. The own id works too. GPUSYM_ERR_UNREACHABLE, with errno: the peer is of
 * another host, user or pid namespace, or its memory is not sealed; GPUSYM_ERR_NO_MEMORY. Thread-safe. */
int gpusym_pages_peer(const gpusym_pages_id_t *id, gpusym_peer_t **peer);
/* Maps the slab of a process whose id is not known here. GPUSYM_ERR_NOT_AVAILABLE: it has none, because it has not yet
 * called a collective of this library with other ranks; GPUSYM_ERR_UNREACHABLE: that cannot be known. About 100 us. */
int gpusym_pages_find(int32_t pid, gpusym_peer_t **peer);
/* Returns the id of a peer's slab, owned by the peer. */
const gpusym_pages_id_t *gpusym_peer_id(const gpusym_peer_t *peer);
/* Returns the process id of a peer. */
int gpusym_peer_pid(const gpusym_peer_t *peer);
/* Returns false once the process has ended, reaped by its parent or not, and only then. About 1 us. Any thread. */
bool gpusym_peer_alive(gpusym_peer_t *peer);

/* Returns a peer's line at off; NULL: no line can begin there. */
void *gpusym_peer_line(gpusym_peer_t *peer, uint64_t off);
/* Returns a peer's table of `bytes` bytes at off; NULL: none can stand there. */
void *gpusym_peer_table(gpusym_peer_t *peer, uint64_t off, uint64_t bytes);
/* Returns whether a line can begin at off in a slab. */
bool gpusym_line_fits(uint64_t off);
/* Return the number of lines that a peer has handed out, freed ones included, and the i-th of them. */
uint64_t gpusym_peer_lines(const gpusym_peer_t *peer);
const void *gpusym_peer_line_at(const gpusym_peer_t *peer, uint64_t i);
/* The areas: parts of every slab, at fixed offsets, initially zero, for what a process tells all peers. AREA(id,
 * bytes): whole pages. */
#define GPUSYM_PAGES_AREAS(AREA)                                         \
    AREA(REG, 9u * 4096u)                  /* memory/reg.c */            \
    AREA(DESCS, 3u * 4096u + 4096u * 512u) /* p2p/send_desc.c */         \
    AREA(STAGING_BUFFER, 4096u)            /* memory/staging_buffer.c */ \
    AREA(GAUGES, 4096u)                    /* shm/gauges.h */
#define GPUSYM_AREA_PLACE(id, bytes) GPUSYM_AREA_##id, GPUSYM_AREA_##id##_LAST = GPUSYM_AREA_##id + (bytes) -1,
/* An area's name is the offset of its first byte in the areas; _LAST: of its last byte. */
typedef enum { GPUSYM_PAGES_AREAS(GPUSYM_AREA_PLACE) GPUSYM_AREAS_BYTES } gpusym_area_t;
#undef GPUSYM_AREA_PLACE
/* The slab of a process as another program sees it, which reads it and is no peer: it maps nothing, and touches none of
 * the slab's memory. */
typedef struct {
    int fd;      /* -1: closed */
    bool other;  /* it is another version's */
    int version; /* a character: which */
} gpusym_look_t;
/* Opens the slab of any process of this host and user, which goes on undisturbed; the caller closes it. Errors:
 * GPUSYM_ERR_NOT_AVAILABLE: it has none; GPUSYM_ERR_UNREACHABLE, with errno: that cannot be known;
 * GPUSYM_ERR_BAD_PARAM: it is of look->version, and not of this one. */
int gpusym_look_open(int32_t pid, gpusym_look_t *look);
/* Idempotent. */
void gpusym_look_close(gpusym_look_t *look);
/* Returns the number of lines that the process has handed out, freed ones included. */
uint64_t gpusym_look_lines(const gpusym_look_t *look);
/* Copies `bytes` bytes of the i-th of them, from byte `from` of it on. The process may change them meanwhile. False:
 * they cannot be read. */
bool gpusym_look_line(const gpusym_look_t *look, uint64_t i, size_t from, size_t bytes, void *copy);
/* Copies the first `bytes` bytes of an area of the process, as above. */
bool gpusym_look_area(const gpusym_look_t *look, gpusym_area_t area, size_t bytes, void *copy);
/* Returns the launch token of a process (agree/tokens.h): 0, or its holder. */
uint64_t *gpusym_peer_token(gpusym_peer_t *peer);
/* Asks for its cache line, to be written soon: that takes 0.1 us, and nobody waits for it here. */
void gpusym_peer_token_prefetch(gpusym_peer_t *peer);
/* Return an area of this process (NULL before gpusym_pages_open), and of a peer. */
void *gpusym_pages_area(gpusym_area_t area);
void *gpusym_peer_area(gpusym_peer_t *peer, gpusym_area_t area);

#endif
