/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Processes of this host: which one, and whether it still lives. Works before anything else is shared with it.
 */
#ifndef GPUSYM_COMMON_SHM_PROCESS_H
#define GPUSYM_COMMON_SHM_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* One process of a host and pid namespace. Process ids come again: the time of its start tells two of them apart. */
typedef struct {
    uint64_t start; /* clock ticks since the host's boot; 0: not known */
    int32_t pid;
    uint32_t pad;
} gpusym_process_id_t;

/* This process. */
void gpusym_process_self(gpusym_process_id_t *id);

/* A process that is watched. Zeroed but for id before the first question. */
typedef struct {
    gpusym_process_id_t id;
    int pidfd; /* valid while `watched`; -1: the kernel has none */
    bool watched, dead;
} gpusym_process_t;

/* False once the process has ended (also while its parent has not yet noticed). The same pid namespace. The first
 * question costs some 10 us, later ones about 1 us. One thread at a time. */
bool gpusym_process_alive(gpusym_process_t *process);
/* No more questions: gives the descriptor back. */
void gpusym_process_forget(gpusym_process_t *process);

/* The same of a process id alone, without a descriptor: one that its parent has not reaped yet answers to kill(), so its state
 * is looked at too. True where that cannot be known. */
bool gpusym_pid_alive(pid_t pid);

#endif
