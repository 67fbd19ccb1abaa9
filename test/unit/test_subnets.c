/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of the choice of network interfaces (topo/subnets.h): of hosts that are made up, and of this one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/topo/subnets.h"

#define MAX 24u

static gpusym_interface_t mine[MAX];
static gpusym_subnets_t host[MAX];
static const gpusym_subnets_t *others[MAX];
static unsigned nmine, nothers;

static gpusym_subnet_t subnet(const char *address, unsigned bits)
{
    struct in_addr in;
    assert_int_equal(inet_pton(AF_INET, address, &in), 1);
    return (gpusym_subnet_t){ntohl(in.s_addr), 0 == bits ? 0 : UINT32_MAX << (32 - bits)};
}

static void clear(void)
{
    nmine = nothers = 0;
    memset(host, 0, sizeof host);
}

static void have(const char *name, const char *address, unsigned bits)
{
    snprintf(mine[nmine].name, sizeof mine->name, "%s", name);
    mine[nmine++].subnet = subnet(address, bits);
}

/* One more host, with the addresses of a list that ends with NULL, in subnets of 24 bits. */
static void add_host(const char *address, ...)
{
    va_list list;
    gpusym_subnets_t *h = &host[nothers];
    va_start(list, address);
    for (const char *at = address; NULL != at; at = va_arg(list, const char *)) {
        h->of[h->count++] = subnet(at, 24);
    }
    va_end(list);
    others[nothers++] = h;
}

static void expect(const char *names)
{
    char *list = gpusym_interfaces_astray(mine, nmine, others, nothers);
    assert_non_null(list);
    assert_string_equal(list, names);
    free(list);
}

static void addresses_that_others_have_too(void **state)
{
    (void) state;
    clear();
    have("eth0", "10.1.7.2", 24);
    have("docker0", "172.17.0.1", 16);
    have("virbr0", "192.168.122.1", 24);
    expect("");                                                /* no other host */
    add_host("10.1.8.2", "172.17.0.1", "192.168.122.1", NULL); /* hosts with routers between them */
    expect("docker0,virbr0");
    add_host("10.1.9.2", NULL);
    expect("docker0,virbr0");
    clear();
    have("docker0", "172.17.0.1", 16);
    add_host("172.17.0.1", NULL);
    expect(""); /* it has no other */
    have("usb0", "169.254.3.1", 24);
    add_host("169.254.3.1", NULL);
    expect("");
}

static void subnets_that_no_other_host_has(void **state)
{
    (void) state;
    clear();
    have("eth0", "10.1.7.2", 24);
    have("ib0", "10.2.0.2", 16);
    have("cni0", "10.244.1.1", 24);
    add_host("10.1.7.3", "10.2.0.3", "10.244.2.1", NULL);
    expect("cni0");
    add_host("10.1.7.4", NULL); /* without the second network */
    expect("cni0");
    add_host("10.2.0.5", NULL); /* no network leads to all */
    expect("");
    clear();
    have("eth0", "10.1.7.2", 24);
    have("tunnel", "10.9.0.1", 32); /* no subnet */
    have("wrong", "10.1.7.9", 0);   /* of all addresses */
    add_host("10.1.7.3", "10.9.0.1", NULL);
    expect("tunnel");
    clear();
    have("eth0", "10.1.7.2", 24);
    have("eth1", "10.1.8.2", 24);
    add_host(NULL); /* it tells of none */
    expect("");
}

static void interfaces_with_several_addresses(void **state)
{
    (void) state;
    clear();
    have("eth0", "192.168.1.1", 24);
    have("eth0", "10.1.7.2", 24);
    have("br0", "172.17.0.1", 16);
    have("br0", "172.18.0.1", 16);
    add_host("192.168.1.1", "10.1.7.3", "172.17.0.1", "172.18.0.1", NULL);
    expect("br0");
    clear();
    have("br0", "172.17.0.1", 16);
    have("eth0", "10.1.7.2", 24);
    have("br0", "10.1.7.7", 24);
    add_host("10.1.7.3", "172.17.0.1", NULL);
    expect("");
}

/* More than a host tells, and a number that cannot be. */
static void very_many(void **state)
{
    char address[32];
    (void) state;
    clear();
    for (unsigned i = 0; i < MAX; i++) {
        snprintf(address, sizeof address, "10.%u.0.1", i);
        have("eth0", address, 24);
    }
    const gpusym_subnets_t told = gpusym_subnets_of(mine, nmine);
    assert_int_equal(told.count, GPUSYM_SUBNETS_MAX);
    assert_int_equal(told.of[GPUSYM_SUBNETS_MAX - 1].address, 10u << 24 | (GPUSYM_SUBNETS_MAX - 1) << 16 | 1);
    add_host("10.0.0.1", NULL);
    host[0].count = 1u << 30;
    expect("");
    assert_int_equal(gpusym_subnets_of(NULL, 0).count, 0);
}

static void those_of_this_host(void **state)
{
    unsigned n;
    gpusym_interface_t *all = gpusym_interfaces_find(&n);
    (void) state;
    assert_int_equal(NULL != all, 0 != n);
    for (unsigned i = 0; i < n; i++) {
        assert_true('\0' != all[i].name[0] && NULL == strchr(all[i].name, ':') && 0 != strcmp(all[i].name, "lo"));
        assert_true(0 != all[i].subnet.address);
    }
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_that_others_have_too),
        cmocka_unit_test(subnets_that_no_other_host_has),
        cmocka_unit_test(interfaces_with_several_addresses),
        cmocka_unit_test(very_many),
        cmocka_unit_test(those_of_this_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
