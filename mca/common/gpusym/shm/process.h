/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Processes of this host: their identity, and whether they are alive. Needs no memory shared with them.
 */
#ifndef GPUSYM_COMMON_SHM_PROCESS_H
#define GPUSYM_COMMON_SHM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Identifies a process of a host and pid namespace. Process ids are reused; the start time tells two such processes
 * apart. */
typedef struct {
    uint64_t start; /* clock ticks since the host's boot; 0: not known */
    int32_t pid;
    uint32_t pad;
} gpusym_process_id_t;

/* Gets the id of this process. */
void gpusym_process_self(gpusym_process_id_t *id);

/* A process that is watched. Set id and zero the rest before the first use. */
typedef struct {
    gpusym_process_id_t id;
    int pidfd; /* valid while `watched`; -1: the kernel has none. Owned */
    bool watched, dead;
} gpusym_process_t;

/* Returns false once the process has ended, reaped by its parent or not. The process must be of this pid namespace.
 * The first call takes about 10 us, later calls about 1 us. One thread at a time. */
bool gpusym_process_alive(gpusym_process_t *process);
/* Ends the watch and closes its descriptor. */
void gpusym_process_forget(gpusym_process_t *process);

/* Opens a descriptor that refers to a process, closed on exec; the caller closes it. -1, with errno: the kernel has
 * none, the process is gone, or no descriptor is left. */
int gpusym_pidfd_open(pid_t pid);
/* Returns false once the process of pidfd has ended, reaped by its parent or not. pidfd -1: as gpusym_pid_alive for
 * pid. About 1 us. Any thread. */
bool gpusym_pidfd_alive(int pidfd, pid_t pid);
/* Returns false once no process has this id, or only one that has ended and is not reaped yet. True where that cannot
 * be known. Any thread. */
bool gpusym_pid_alive(pid_t pid);
/* The process that is its parent now; 0: there is none, or it cannot be told. */
pid_t gpusym_pid_parent(pid_t pid);

/* Where the memory of this process lies: the stack of its first thread ends at *stack, which is above all of its
 * frames; its heap (brk) begins at *heap.  0: not known. */
void gpusym_process_memory(uintptr_t *stack, uintptr_t *heap);

#endif
