/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which network interfaces of a host lead to other hosts, as far as their IPv4 addresses tell: an interface for
 * containers or for the board's own controller has the same address on every host, or one that only this host knows. A
 * library that chooses by bandwidth, as UCX, may choose it.
 */
#ifndef GPUSYM_COMMON_TOPO_SUBNETS_H
#define GPUSYM_COMMON_TOPO_SUBNETS_H

#include <net/if.h>
#include <stdint.h>

/* An IPv4 address and the mask of its subnet, in the byte order of the host. */
typedef struct {
    uint32_t address, mask;
} gpusym_subnet_t;

/* What a host tells others: the addresses of its interfaces, or the first ones of very many. Plain bytes. */
#define GPUSYM_SUBNETS_MAX 16u
typedef struct {
    uint32_t count;
    gpusym_subnet_t of[GPUSYM_SUBNETS_MAX];
} gpusym_subnets_t;

/* An address of an interface, which may have several. */
typedef struct {
    char name[IF_NAMESIZE];
    gpusym_subnet_t subnet;
} gpusym_interface_t;

/* Finds those of this host that are up, in the order of the system, without the loopback. Returns them, for the caller
 * to free; NULL, with *n 0: there are none, or there is no memory. */
gpusym_interface_t *gpusym_interfaces_find(unsigned *n);

/* Returns their addresses. */
gpusym_subnets_t gpusym_subnets_of(const gpusym_interface_t *all, unsigned n);

/* Returns the names of the interfaces that lead to none of the other hosts, separated by commas, for the caller to
 * free; "" if there are none; NULL: no memory. others: [nothers] of other hosts. Those are
 *   - whose addresses other hosts have too;
 *   - which have no subnet in common with any other host, if another interface has one with each of them.
 * Where that would be all, it is none. */
char *gpusym_interfaces_astray(const gpusym_interface_t *all, unsigned n, const gpusym_subnets_t *const *others,
                               unsigned nothers);

#endif
