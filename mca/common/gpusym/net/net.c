/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The check of what arrives, and the loading of UCX: see net.h.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/net/net.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "mca/common/gpusym/log.h"

bool gpusym_net_check(const void *header, size_t header_bytes, uint64_t data_bytes, uint32_t bytes_max,
                      gpusym_net_head_t *head)
{
    if (sizeof *head != header_bytes) {
        return false;
    }
    memcpy(head, header, sizeof *head);
    return GPUSYM_NET_MARK == head->mark && head->kind < GPUSYM_NET_KINDS && head->bytes == data_bytes &&
           head->bytes <= bytes_max && (GPUSYM_NET_DATA == head->kind || 0 == head->bytes);
}

/* ---- UCX ---- */

#define UCX_LIBRARY "libgpusym_net_ucx.so"

/* `lock` covers the rest. */
static struct {
    pthread_mutex_t lock;
    bool tried;
    const gpusym_transport_t *transport;
    char why[512];
} ucx = {.lock = PTHREAD_MUTEX_INITIALIZER, .why = "gpusym was built without UCX"};

#if GPUSYM_HAVE_UCX
/* UCX installs handlers for these as it is loaded; those of the program are put back. */
static const int error_signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
enum { ERROR_SIGNALS = sizeof error_signals / sizeof *error_signals };

/* The library lies beside this one. */
static void *open_library(void)
{
    struct sigaction before[ERROR_SIGNALS];
    char path[PATH_MAX + sizeof UCX_LIBRARY];
    Dl_info here;

    if (0 == dladdr(&ucx, &here) || NULL == here.dli_fname || strlen(here.dli_fname) >= PATH_MAX) {
        return NULL;
    }
    strcpy(path, here.dli_fname);
    char *name = strrchr(path, '/');
    strcpy(NULL == name ? path : name + 1, UCX_LIBRARY);
    for (unsigned i = 0; i < ERROR_SIGNALS; i++) {
        sigaction(error_signals[i], NULL, &before[i]);
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    for (unsigned i = 0; i < ERROR_SIGNALS; i++) {
        sigaction(error_signals[i], &before[i], NULL);
    }
    return library;
}

/* With the lock held. */
static void load_ucx(void)
{
    void *library = open_library();

    if (NULL != library) {
        ucx.transport = dlsym(library, "gpusym_net_ucx");
    }
    if (NULL == ucx.transport) {
        const char *error = dlerror();
        snprintf(ucx.why, sizeof ucx.why, "UCX is not usable here: %s", NULL == error ? UCX_LIBRARY : error);
    }
}
#endif

const gpusym_transport_t *gpusym_transport_ucx(const char **why)
{
    pthread_mutex_lock(&ucx.lock);
    if (!ucx.tried) {
        ucx.tried = true;
#if GPUSYM_HAVE_UCX
        load_ucx();
#endif
        if (NULL == ucx.transport) {
            GPUSYM_LOG(2, "no network between hosts: %s", ucx.why);
        }
    }
    *why = ucx.why;
    pthread_mutex_unlock(&ucx.lock);
    return ucx.transport;
}
