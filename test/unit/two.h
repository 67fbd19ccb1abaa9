/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Two processes, for tests of memory that processes share: a channel between them, and their meeting. A file that
 * includes this uses all of it.
 */
#ifndef TEST_UNIT_TWO_H
#define TEST_UNIT_TWO_H

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mca/common/gpusym/p2p/send_desc.h"

/* How they find each other: the first member of the test's channel, which both map. Zeroed at first. */
typedef struct {
    gpusym_pages_id_t card[2];
    uint32_t ready[2];
} two_meeting_t;

static void two_reach(const uint32_t *flag, uint32_t value)
{
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) < value) {
        sched_yield();
    }
}

/* In both processes: opens, and attaches the other one. side 0: the parent. NULL: that failed. */
static gpusym_peer_t *two_meet(two_meeting_t *m, unsigned side, bool (*open)(unsigned side, gpusym_pages_id_t *card))
{
    gpusym_peer_t *peer = NULL;
    if (!open(side, &m->card[side])) {
        return NULL;
    }
    __atomic_store_n(&m->ready[side], 1, __ATOMIC_RELEASE);
    two_reach(&m->ready[1 - side], 1);
    if (GPUSYM_SUCCESS != gpusym_pages_peer(&m->card[1 - side], &peer) ||
        GPUSYM_SUCCESS != gpusym_send_descs_attach(peer, 1 - side)) {
        return NULL;
    }
    __atomic_store_n(&m->ready[side], 2, __ATOMIC_RELEASE);
    two_reach(&m->ready[1 - side], 2);
    return peer;
}

/* A channel of so many bytes, for the next two processes. */
static void *two_channel(size_t bytes)
{
    void *channel = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(MAP_FAILED != channel);
    return channel;
}

/* Starts the other process, which runs child() and must not return from it; gets it as a peer. */
static pid_t two_start(two_meeting_t *m, bool (*open)(unsigned side, gpusym_pages_id_t *card),
                       void (*child)(gpusym_peer_t *), gpusym_peer_t **peer)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (0 == pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        gpusym_peer_t *other = two_meet(m, 1, open);
        if (NULL != other) {
            child(other);
        }
        _exit(2);
    }
    *peer = two_meet(m, 0, open);
    assert_non_null(*peer);
    return pid;
}

/* Waits for the other process, and unmaps the channel. Returns the process's status. */
static int two_reap(pid_t pid, void *channel, size_t bytes)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    munmap(channel, bytes);
    return status;
}

#endif
