/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the simulator is told to be: the faults that it injects, and the links between simulated GPUs.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mca/common/gpusym/device/sim/sim_internal.h"

/* ---- injected faults ---- */

static const char *const fault_words[SIM_FAULT_KINDS] = {
#define X(id, word) #word,
    SIM_FAULTS(X)
#undef X
};

#define FAULTS_MAX 32

typedef enum { FAILS, DIES, STAYS } fault_end_t;

/* What stands before the event, by what comes of it. */
static const char *const fault_ends[] = {[FAILS] = "", [DIES] = "die:", [STAYS] = "stay:"};

struct fault {
    sim_fault_t kind;
    unsigned long n; /* the n-th event of that kind, from 1 */
    bool onwards;    /* and all later ones */
    fault_end_t end;
};

/* Written by sim_faults_parse(), while the simulator is not open. */
static struct {
    struct fault fault[FAULTS_MAX];
    unsigned n;
    unsigned long events[SIM_FAULT_KINDS]; /* atomic: how many there were since open */
} faults;
static _Thread_local bool held;
static bool broken; /* atomic */

/* Reads a number of decimal digits at *at and moves *at behind it; false if there is none. */
static bool number_parse(const char **at, unsigned long *number)
{
    size_t digits = strspn(*at, "0123456789");
    *number = strtoul(*at, NULL, 10);
    *at += digits;
    return 0 != digits;
}

/* The fault that the first `length` bytes of `word` name; SIM_FAULT_KINDS: none. */
static sim_fault_t fault_find(const char *word, size_t length)
{
    for (unsigned kind = 0; kind < SIM_FAULT_KINDS; kind++) {
        if (strlen(fault_words[kind]) == length && 0 == memcmp(fault_words[kind], word, length)) {
            return kind;
        }
    }
    return SIM_FAULT_KINDS;
}

/* Reads "die:" or "stay:", if that stands at *at, and moves *at behind it. */
static fault_end_t end_parse(const char **at)
{
    for (fault_end_t end = DIES; end <= STAYS; end++) {
        if (0 == strncmp(*at, fault_ends[end], strlen(fault_ends[end]))) {
            *at += strlen(fault_ends[end]);
            return end;
        }
    }
    return FAILS;
}

/* Parses one entry, "[die:|stay:]what:n[+][@rank]", that ends at end.  Returns false if it is malformed. */
static bool fault_parse(const char *part, const char *end)
{
    const fault_end_t how = end_parse(&part);
    const size_t word = strcspn(part, ":,");
    struct fault fault = {.kind = fault_find(part, word), .end = how};
    part += word;
    if (SIM_FAULT_KINDS == fault.kind || ':' != *part++ || !number_parse(&part, &fault.n) || 0 == fault.n) {
        return false;
    }
    fault.onwards = '+' == *part;
    part += fault.onwards;
    bool ours = true;
    if ('@' == *part) {
        unsigned long rank;
        part++;
        if (!number_parse(&part, &rank)) {
            return false;
        }
        ours = gpusym_sim_params.world_rank >= 0 && rank == (unsigned long) gpusym_sim_params.world_rank;
    }
    if (part != end || FAULTS_MAX == faults.n) {
        return false;
    }
    if (ours) {
        faults.fault[faults.n++] = fault;
    }
    return true;
}

int sim_faults_parse(const char *spec)
{
    faults.n = 0;
    memset(faults.events, 0, sizeof(faults.events));
    while (NULL != spec && '\0' != *spec) {
        const char *end = spec + strcspn(spec, ",");
        if (!fault_parse(spec, end)) {
            int used = snprintf(sim.why, sizeof(sim.why),
                                "faults to inject: \"%.*s\" is not [die:|stay:]what:n[+][@rank] with n from 1 (at most "
                                "%d of them), where"
                                " what is one of",
                                (int) (end - spec < 64 ? end - spec : 64), spec, FAULTS_MAX);
            for (unsigned kind = 0; kind < SIM_FAULT_KINDS && used < (int) sizeof(sim.why); kind++) {
                used += snprintf(sim.why + used, sizeof(sim.why) - (size_t) used, " %s", fault_words[kind]);
            }
            return GPUSYM_ERR_BAD_PARAM;
        }
        spec = end + (',' == *end);
    }
    return GPUSYM_SUCCESS;
}

void gpusym_sim_faults_hold(bool hold)
{
    held = hold;
}

/* Does not return, as a call of a driver that hangs. */
static void stay(void)
{
    if (NULL != gpusym_sim_params.stays) {
        gpusym_sim_params.stays();
        return;
    }
    for (;;) {
        pause();
    }
}

static void die(void)
{
    if (NULL != gpusym_sim_params.dies) {
        gpusym_sim_params.dies();
    } else {
        kill(getpid(), SIGKILL);
    }
}

void gpusym_sim_break(void)
{
    __atomic_store_n(&broken, true, __ATOMIC_RELAXED);
}

bool sim_broken(void)
{
    const bool yes = __atomic_load_n(&broken, __ATOMIC_RELAXED);
    if (yes) {
        sim_fail(GPUSYM_ERR, "an earlier kernel has accessed an illegal address");
    }
    return yes;
}

bool sim_fault_due(sim_fault_t kind)
{
    if (held) {
        return false;
    }
    if (kind < SIM_FAULTS_OF_ERROR && sim_broken()) {
        return true;
    }
    unsigned long n = 1 + __atomic_fetch_add(&faults.events[kind], 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < faults.n; i++) {
        const struct fault *f = &faults.fault[i];
        if (kind != f->kind || n < f->n || (n > f->n && !f->onwards)) {
            continue;
        }
        if (FAILS == f->end) {
            sim_fail(GPUSYM_ERR, "injected fault %s:%lu", fault_words[kind], n);
            return true;
        }
        (DIES == f->end ? die : stay)();
    }
    return false;
}

/* ---- links between simulated GPUs ---- */

struct link {
    unsigned long a, b, class;
    bool spoils;
};

/* Reads one part of gpusym_sim_params.links, "a-b:class[!]", and moves *at behind it and a comma; false if it is
 * none. */
static bool link_parse(const char **at, struct link *link)
{
    const bool good = number_parse(at, &link->a) && '-' == *(*at)++ && number_parse(at, &link->b) && ':' == *(*at)++ &&
                      number_parse(at, &link->class) && link->class < GPUSYM_LINK_SELF && link->a != link->b;
    link->spoils = good && '!' == **at;
    *at += link->spoils;
    if (!good || ('\0' != **at && ',' != **at)) {
        return false;
    }
    *at += ',' == **at;
    return true;
}

int sim_links_check(void)
{
    struct link link;
    const char *at = gpusym_sim_params.links;
    while (NULL != at && '\0' != *at) {
        const char *part = at;
        if (!link_parse(&at, &link)) {
            snprintf(sim.why, sizeof(sim.why),
                     "links: \"%.64s\" does not begin with A-B:CLASS[!], two GPUs and a class below %u", part,
                     GPUSYM_LINK_SELF);
            return GPUSYM_ERR_BAD_PARAM;
        }
    }
    return GPUSYM_SUCCESS;
}

static struct link link_find(int32_t other)
{
    const unsigned long a = (unsigned long) sim.gpu.info.place.number, b = (unsigned long) other;
    struct link found = {.class = a == b ? GPUSYM_LINK_SELF : GPUSYM_LINK_NVLINK + 1}, link;
    const char *at = gpusym_sim_params.links;
    while (NULL != at && '\0' != *at && link_parse(&at, &link)) {
        if ((link.a == a && link.b == b) || (link.a == b && link.b == a)) {
            found = link;
        }
    }
    return found;
}

int sim_link_class(int32_t other)
{
    return (int) link_find(other).class;
}

bool sim_link_spoils(int32_t other)
{
    return link_find(other).spoils;
}
