/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A profiler for test/trace.sh, by NVTX_INJECTION64_PATH: counts the ranges of each name, and prints a line for each at
 * the end of the process: "nvtx: NAME, N ranges", and "nvtx: N ranges are open" where not all have ended.
 */
#include "config.h"

#if GPUSYM_HAVE_NVTX

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wextra"
#include <nvtx3/nvToolsExt.h>
#pragma GCC diagnostic pop

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_MAX = 64 };

static struct {
    char name[64];
    unsigned ranges;
} seen[NAMES_MAX];
static unsigned nseen;
static int open_ranges;

static nvtxDomainHandle_t create(const char *name)
{
    return (nvtxDomainHandle_t) (0 == strcmp(name, "gpusym") ? (void *) seen : NULL);
}

static nvtxStringHandle_t register_name(nvtxDomainHandle_t domain, const char *name)
{
    (void) domain;
    if (NAMES_MAX == nseen) {
        abort();
    }
    snprintf(seen[nseen].name, sizeof seen[nseen].name, "%s", name);
    return (nvtxStringHandle_t) (void *) &seen[nseen++];
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *range)
{
    (void) domain;
    for (unsigned i = 0; i < nseen; i++) {
        if ((void *) &seen[i] == (void *) range->message.registered) {
            __atomic_fetch_add(&seen[i].ranges, 1, __ATOMIC_RELAXED);
        }
    }
    return __atomic_fetch_add(&open_ranges, 1, __ATOMIC_RELAXED);
}

static int pop(nvtxDomainHandle_t domain)
{
    (void) domain;
    return __atomic_sub_fetch(&open_ranges, 1, __ATOMIC_RELAXED);
}

static void __attribute__((destructor)) tell(void)
{
    for (unsigned i = 0; i < nseen; i++) {
        if (0 != seen[i].ranges) {
            fprintf(stderr, "nvtx: %s, %u ranges\n", seen[i].name, seen[i].ranges);
        }
    }
    if (0 != open_ranges) {
        fprintf(stderr, "nvtx: %d ranges are open\n", open_ranges);
    }
}

/* A function as the table has it. */
#define SET(table, ID, f)                                                  \
    do {                                                                   \
        const void *address_;                                              \
        __typeof__(&f) function_ = f;                                      \
        memcpy(&address_, &function_, sizeof address_);                    \
        memcpy((table)[NVTX_CBID_CORE2_##ID], &address_, sizeof address_); \
    } while (0)

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t find);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t find)
{
    const NvtxExportTableCallbacks *callbacks = find(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table;
    unsigned size;
    if (NULL == callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) ||
        size <= NVTX_CBID_CORE2_DomainCreateA) {
        return 0;
    }
    SET(table, DomainCreateA, create);
    SET(table, DomainRegisterStringA, register_name);
    SET(table, DomainRangePushEx, push);
    SET(table, DomainRangePop, pop);
    return 1;
}

#else

extern int nvtx_is_missing;
int nvtx_is_missing;

#endif
