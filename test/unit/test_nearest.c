/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of the choice of network devices as a process opens its end of the net (mca/coll/gpusym/team/worker.c): by
 * coll_gpusym_net_devices, and by the GPU that is current then.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/worker.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/topo/links.h"

/* ---- in the place of other files ---- */

coll_gpusym_params_t coll_gpusym_params;
static const gpusym_transport_t transport = {.name = "a net of the test"};
static char opened[512]; /* "only|nearest|astray" */
static char lines[2048];

const gpusym_transport_t *gpusym_transport_ucx(const char **why)
{
    *why = "";
    return &transport;
}

int gpusym_worker_open(const gpusym_worker_params_t *params, gpusym_worker_t **worker, const char **why)
{
    assert_ptr_equal(params->transport, &transport);
    const gpusym_net_devices_t *d = &params->devices;
    snprintf(opened, sizeof opened, "%s|%s|%s", NULL != d->only ? d->only : "", NULL != d->nearest ? d->nearest : "",
             NULL != d->astray ? d->astray : "");
    *worker = (gpusym_worker_t *) opened;
    *why = "";
    return GPUSYM_SUCCESS;
}

void gpusym_worker_close(gpusym_worker_t *worker)
{
    assert_true(NULL == worker || (void *) worker == opened);
}

static const char *astray = "";

char *coll_gpusym_peers_astray(coll_gpusym_peer_t *const *peer, uint32_t n)
{
    assert_true(NULL == peer && 0 == n);
    return NULL != astray ? strdup(astray) : NULL;
}

static bool has_nics, guessed;

bool gpusym_topo_has_nics(void)
{
    return has_nics;
}

/* The GPU of the local rank, 0000:1a:00.0 and so on. */
bool gpusym_topo_guess(unsigned local_rank, gpusym_place_t *gpu)
{
    *gpu = (gpusym_place_t){.number = -1};
    snprintf(gpu->pci, sizeof gpu->pci, "0000:1%x:00.0", 10 + local_rank % 4);
    return guessed;
}

/* Of GPU 0000:1b:00.0. */
void gpusym_topo_nics(const gpusym_place_t *gpu, gpusym_topo_nics_t *nics)
{
    *nics = (gpusym_topo_nics_t){.devices = ""};
    if (0 == strcmp(gpu->pci, "0000:1b:00.0")) {
        strcpy(nics->devices, "mlx5_3:1");
        strcpy(nics->why, "near");
    } else {
        strcpy(nics->why, "far");
    }
}

/* ---- a device with GPUs 0 to 3 at 0000:1a:00.0 and so on ---- */

static int current;

static int gpu_current(void)
{
    return current;
}

static int gpu_look(int ordinal, gpusym_gpu_info_t *info)
{
    *info = (gpusym_gpu_info_t){.ordinal = ordinal, .place = {.number = -1}};
    snprintf(info->place.pci, sizeof info->place.pci, "0000:1%x:00.0", 10 + (unsigned) ordinal % 4);
    snprintf(info->where, sizeof info->where, "%s", info->place.pci);
    return GPUSYM_SUCCESS;
}

static const gpusym_device_t gpus = {.gpu_current = gpu_current, .gpu_look = gpu_look};

static void take_line(const char *line)
{
    strncat(lines, line, sizeof lines - 1 - strlen(lines));
}

/* Opens the worker: with these devices, and a line that has this part. */
static void expect_open(coll_gpusym_net_t choice, const char *devices, const char *part)
{
    coll_gpusym_params.net_choice = choice;
    opened[0] = lines[0] = '\0';
    gpusym_log_to(take_line, 2);
    assert_null(coll_gpusym_worker());
    gpusym_worker_t *w = coll_gpusym_worker_open(NULL, 0);
    assert_ptr_equal(coll_gpusym_worker(), w);
    assert_ptr_equal(coll_gpusym_worker_open(NULL, 0), w);
    gpusym_log_to(NULL, 0);
    assert_int_equal(NULL != w, COLL_GPUSYM_NET_NONE != choice);
    assert_string_equal(opened, devices);
    if (NULL == strstr(lines, part)) {
        fail_msg("\"%s\" should tell of \"%s\"", lines, part);
    }
}

static void expect_choice(coll_gpusym_net_t choice, const char *devices, const char *part)
{
    expect_open(choice, devices, part);
    coll_gpusym_worker_fini();
}

static void by_the_gpu(void **state)
{
    (void) state;
    gpusym_current.dev = &gpus;
    has_nics = true;
    current = 1;
    expect_choice(COLL_GPUSYM_NET_AUTO, "|mlx5_3:1|",
                  "GPU 0000:1b:00.0 (which is current): the RDMA devices nearest to it: mlx5_3:1 (near)");
    current = 2;
    expect_choice(COLL_GPUSYM_NET_AUTO, "||", "leaves the choice of RDMA devices to UCX: far");
    current = -1;
    expect_choice(COLL_GPUSYM_NET_AUTO, "||", "to UCX: no GPU is current");
    guessed = true;
    coll_gpusym_params.local_rank = 5;
    expect_choice(COLL_GPUSYM_NET_AUTO, "|mlx5_3:1|",
                  "GPU 0000:1b:00.0 (by its rank on the host, since none is current yet): the RDMA");
    coll_gpusym_params.local_rank = 4;
    expect_choice(COLL_GPUSYM_NET_AUTO, "||", "to UCX: far");
    has_nics = false;
    coll_gpusym_params.local_rank = 1;
    expect_choice(COLL_GPUSYM_NET_AUTO, "||", "to UCX: this host has no RDMA device");
    has_nics = true;
    gpusym_current.dev = NULL;
    expect_choice(COLL_GPUSYM_NET_AUTO, "||", "to UCX: no GPU is current");
}

/* The GPU that is used in the end is told once, if it is another one. */
static void of_another_gpu(void **state)
{
    gpusym_gpu_info_t used = {.place = {.pci = "0000:1B:00.0"}};

    (void) state;
    gpusym_current.dev = &gpus;
    has_nics = guessed = true;
    current = -1;
    coll_gpusym_params.local_rank = 1;
    expect_open(COLL_GPUSYM_NET_AUTO, "|mlx5_3:1|", "by its rank on the host");
    lines[0] = '\0';
    gpusym_log_to(take_line, 2);
    coll_gpusym_worker_used_by(&used);
    assert_string_equal(lines, "");
    strcpy(used.place.pci, "0000:1c:00.0");
    coll_gpusym_worker_used_by(&used);
    assert_non_null(strstr(lines, "uses GPU 0000:1c:00.0, but its network devices were chosen for GPU 0000:1b:00.0"));
    lines[0] = '\0';
    coll_gpusym_worker_used_by(&used);
    assert_string_equal(lines, "");
    coll_gpusym_worker_fini();
    expect_open(COLL_GPUSYM_NET_UCX, "||", "to UCX");
    lines[0] = '\0';
    gpusym_log_to(take_line, 2);
    coll_gpusym_worker_used_by(&used);
    assert_string_equal(lines, "");
    gpusym_log_to(NULL, 0);
    coll_gpusym_worker_fini();
}

static void by_the_parameter(void **state)
{
    (void) state;
    gpusym_current.dev = &gpus;
    has_nics = true;
    current = 1;
    coll_gpusym_params.net_devices = "eth0,mlx5_0:1";
    expect_choice(COLL_GPUSYM_NET_NAMED, "eth0,mlx5_0:1||", "");
    expect_choice(COLL_GPUSYM_NET_UCX, "||", "to UCX: coll_gpusym_net_devices is ucx");
    astray = "docker0,virbr0";
    expect_choice(COLL_GPUSYM_NET_NAMED, "eth0,mlx5_0:1||", "");
    expect_choice(COLL_GPUSYM_NET_UCX, "||", "to UCX: coll_gpusym_net_devices is ucx");
    expect_choice(COLL_GPUSYM_NET_NONE, "", "has no network between islands: coll_gpusym_net_devices is none");
}

static void by_other_hosts(void **state)
{
    (void) state;
    gpusym_current.dev = &gpus;
    has_nics = true;
    current = 1;
    astray = "docker0,virbr0";
    expect_choice(COLL_GPUSYM_NET_AUTO, "|mlx5_3:1|docker0,virbr0",
                  "does not use the network interfaces that lead to no other host: docker0,virbr0");
    has_nics = false;
    expect_choice(COLL_GPUSYM_NET_AUTO, "||docker0,virbr0", "does not use the network interfaces");
    astray = NULL; /* no memory */
    expect_choice(COLL_GPUSYM_NET_AUTO, "||", "to UCX: this host has no RDMA device");
    astray = "";
    expect_choice(COLL_GPUSYM_NET_AUTO, "||", "to UCX: this host has no RDMA device");
    assert_null(strstr(lines, "does not use"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_the_gpu),
        cmocka_unit_test(of_another_gpu),
        cmocka_unit_test(by_other_hosts),
        cmocka_unit_test(by_the_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
