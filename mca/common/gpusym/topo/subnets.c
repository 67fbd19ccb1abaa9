/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Interfaces and their subnets: see subnets.h.
 */
#include "mca/common/gpusym/topo/subnets.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_meant(const struct ifaddrs *at)
{
    return NULL != at->ifa_addr && AF_INET == at->ifa_addr->sa_family && NULL != at->ifa_netmask &&
           IFF_UP == (at->ifa_flags & (IFF_UP | IFF_LOOPBACK));
}

static uint32_t number_of(const struct sockaddr *address)
{
    struct sockaddr_in in;
    memcpy(&in, address, sizeof in);
    return ntohl(in.sin_addr.s_addr);
}

gpusym_interface_t *gpusym_interfaces_find(unsigned *n)
{
    struct ifaddrs *first = NULL;
    unsigned count = 0;
    *n = 0;
    if (0 != getifaddrs(&first)) {
        return NULL;
    }
    for (const struct ifaddrs *at = first; NULL != at; at = at->ifa_next) {
        count += is_meant(at);
    }
    gpusym_interface_t *all = 0 != count ? calloc(count, sizeof *all) : NULL;
    for (const struct ifaddrs *at = first; NULL != at && NULL != all; at = at->ifa_next) {
        if (is_meant(at)) {
            gpusym_interface_t *one = &all[(*n)++];
            /* an address with a label has that behind the name: eth0:1 */
            snprintf(one->name, sizeof one->name, "%.*s", (int) strcspn(at->ifa_name, ":"), at->ifa_name);
            one->subnet = (gpusym_subnet_t){number_of(at->ifa_addr), number_of(at->ifa_netmask)};
        }
    }
    freeifaddrs(first);
    return all;
}

gpusym_subnets_t gpusym_subnets_of(const gpusym_interface_t *all, unsigned n)
{
    gpusym_subnets_t some = {.count = n < GPUSYM_SUBNETS_MAX ? n : GPUSYM_SUBNETS_MAX};
    for (unsigned i = 0; i < some.count; i++) {
        some.of[i] = all[i].subnet;
    }
    return some;
}

static uint32_t count_of(const gpusym_subnets_t *host)
{
    return host->count < GPUSYM_SUBNETS_MAX ? host->count : GPUSYM_SUBNETS_MAX;
}

static bool has_address(const gpusym_subnets_t *host, uint32_t address)
{
    for (uint32_t i = 0; i < count_of(host); i++) {
        if (host->of[i].address == address) {
            return true;
        }
    }
    return false;
}

/* Whether a host has an address in this subnet, which is none if it is of one address. */
static bool is_in(const gpusym_subnets_t *host, const gpusym_subnet_t *subnet)
{
    for (uint32_t i = 0; i < count_of(host) && UINT32_MAX != subnet->mask; i++) {
        if (0 == ((host->of[i].address ^ subnet->address) & subnet->mask)) {
            return true;
        }
    }
    return false;
}

/* What is known of an address, with regard to the other hosts. */
typedef enum { TWICE, ALONE, SHARED_BY_SOME, SHARED_BY_ALL } reach_t;

static reach_t reach_of(const gpusym_subnet_t *subnet, const gpusym_subnets_t *const *others, unsigned nothers)
{
    unsigned shared = 0;
    for (unsigned i = 0; i < nothers; i++) {
        if (has_address(others[i], subnet->address)) {
            return TWICE;
        }
        shared += is_in(others[i], subnet);
    }
    return nothers == shared ? SHARED_BY_ALL : 0 != shared ? SHARED_BY_SOME : ALONE;
}

/* Of all addresses of that interface, the best. */
static reach_t reach_by_name(const gpusym_interface_t *all, unsigned n, const char *name,
                             const gpusym_subnets_t *const *others, unsigned nothers)
{
    reach_t best = TWICE;
    for (unsigned i = 0; i < n; i++) {
        if (0 == strcmp(all[i].name, name)) {
            const reach_t reach = reach_of(&all[i].subnet, others, nothers);
            best = reach > best ? reach : best;
        }
    }
    return best;
}

char *gpusym_interfaces_astray(const gpusym_interface_t *all, unsigned n, const gpusym_subnets_t *const *others,
                               unsigned nothers)
{
    char *list = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&list, &size);
    if (NULL == f) {
        return NULL;
    }
    reach_t best = TWICE;
    for (unsigned i = 0; i < n; i++) {
        const reach_t reach = reach_of(&all[i].subnet, others, nothers);
        best = reach > best ? reach : best;
    }
    const reach_t needed = SHARED_BY_ALL == best ? SHARED_BY_SOME : TWICE == best ? TWICE : ALONE;
    const char *comma = "", *before = "";
    for (unsigned i = 0; i < n; i++) {
        if (0 != strcmp(before, all[i].name) && reach_by_name(all, n, all[i].name, others, nothers) < needed) {
            fprintf(f, "%s%s", comma, all[i].name);
            comma = ",";
        }
        before = all[i].name;
    }
    return 0 == fclose(f) ? list : (free(list), NULL);
}
