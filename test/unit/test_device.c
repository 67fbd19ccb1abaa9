/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/device (select.c, multicast.c), gpusym.c and common.c: which device is chosen, who
 * opens and closes it, what forbids multicast.  Runs on machines with and without a GPU.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mca/common/gpusym/device/cuda/cuda_device.h"
#include "mca/common/gpusym/device/multicast.h"
#include "mca/common/gpusym/device/select.h"
#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/alloc.h"
#include "mca/common/gpusym/trace.h"

static const char *const vetoes[] = {"NCCL_NVLS_ENABLE", "NVSHMEM_DISABLE_NVLS", "TORCH_SYMM_MEM_DISABLE_MULTICAST"};
#define VETOES (sizeof(vetoes) / sizeof(vetoes[0]))

static int clean(void **state)
{
    (void) state;
    for (size_t i = 0; i < VETOES; i++) {
        unsetenv(vetoes[i]);
    }
    gpusym_close();
    gpusym_device_close();
    memset(&gpusym_sim_params, 0, sizeof(gpusym_sim_params));
    return 0;
}

static void simulator_by_name(void **state)
{
    (void) state;
    assert_null(gpusym_device());
    assert_ptr_equal(gpusym_device_select(GPUSYM_DEVICE_SIM, NULL), &gpusym_device_sim);
    assert_ptr_equal(gpusym_device(), &gpusym_device_sim);
    assert_true(gpusym_device()->simulated);

    gpusym_gpu_t *gpu;
    assert_int_equal(gpusym_device()->gpu_open(NULL, &gpu), GPUSYM_SUCCESS);
    gpusym_device_close();
    assert_null(gpusym_device());
    assert_int_equal(gpusym_device_sim.gpu_open(NULL, &gpu), GPUSYM_ERR_NOT_AVAILABLE);
}

static void first_choice_stays(void **state)
{
    (void) state;
    const char *why = NULL, *again = NULL;
    assert_non_null(gpusym_device_select(GPUSYM_DEVICE_SIM, &why));
    assert_ptr_equal(gpusym_device_select(GPUSYM_DEVICE_NONE, &why), &gpusym_device_sim);
    assert_ptr_equal(gpusym_device_select(GPUSYM_DEVICE_AUTO, &why), &gpusym_device_sim);
    assert_null(why);
    gpusym_device_close();

    assert_null(gpusym_device_select(GPUSYM_DEVICE_NONE, &why));
    assert_non_null(why);
    assert_null(gpusym_device_select(GPUSYM_DEVICE_SIM, &again));
    assert_string_equal(why, again);
    assert_null(gpusym_device());
    gpusym_device_close();
    assert_non_null(gpusym_device_select(GPUSYM_DEVICE_SIM, NULL));
}

static void auto_is_cuda_or_none(void **state)
{
    (void) state;
    const char *why = NULL, *reason = NULL;
    bool here = NULL != gpusym_device_cuda && GPUSYM_SUCCESS == gpusym_device_cuda->open(&reason);
    const gpusym_device_t *dev = gpusym_device_select(GPUSYM_DEVICE_AUTO, &why);
    if (here) {
        assert_ptr_equal(dev, gpusym_device_cuda);
        return;
    }
    assert_null(dev);
    assert_non_null(why);
    assert_true('\0' != why[0]);
    gpusym_device_close();
    assert_null(gpusym_device_select(GPUSYM_DEVICE_CUDA, &why));
}

static void refusals_say_why(void **state)
{
    (void) state;
    const char *why = NULL;
    gpusym_sim_params.fail = "alloc:1,teapot:3";
    assert_null(gpusym_device_select(GPUSYM_DEVICE_SIM, &why));
    assert_non_null(strstr(why, "teapot:3"));
    gpusym_device_close();

    assert_null(gpusym_device_select((gpusym_device_choice_t) 77, &why));
    assert_non_null(strstr(why, "unknown"));
    gpusym_device_close();
    assert_null(gpusym_device_select((gpusym_device_choice_t) 77, NULL));
}

static gpusym_gpu_t *sim_gpu; /* of the simulator, where that is selected */

static void select_sim(void)
{
    const gpusym_device_t *dev = gpusym_device_select(GPUSYM_DEVICE_SIM, NULL);
    assert_non_null(dev);
    assert_int_equal(dev->gpu_open(NULL, &sim_gpu), GPUSYM_SUCCESS);
}

/* Has the simulator make an object. */
static int try_create(int setting)
{
    gpusym_mc_t *mc;
    gpusym_handle_t handle;
    const int rc = gpusym_device_sim.mc_create(sim_gpu, setting, 3, 4096, &mc, &handle);
    if (GPUSYM_SUCCESS == rc) {
        gpusym_device_sim.mc_free(mc);
    }
    return rc;
}

static void expect_forbidden(int setting, const char *name)
{
    for (int simulated = 0; simulated < 2; simulated++) {
        const char *why = NULL;
        assert_false(gpusym_multicast_allowed(setting, 0 != simulated, &why));
        assert_non_null(strstr(why, name));
        assert_false(gpusym_multicast_allowed(setting, 0 != simulated, NULL));
    }
    assert_int_equal(try_create(setting), GPUSYM_ERR_NOT_AVAILABLE);
    assert_non_null(strstr(gpusym_device_sim.error(), name));
}

/* By the table on the simulator alone; where the user asks for it on GPUs too. */
static void expect_allowed(void)
{
    const char *why = NULL;
    assert_true(gpusym_multicast_allowed(1, false, &why));
    assert_true(gpusym_multicast_allowed(1, true, &why));
    assert_true(gpusym_multicast_allowed(-1, true, &why));
    assert_null(why);
    assert_false(gpusym_multicast_allowed(-1, false, &why));
    assert_non_null(strstr(why, "table"));
    assert_int_equal(try_create(-1), GPUSYM_SUCCESS);
    assert_int_equal(try_create(1), GPUSYM_SUCCESS);
}

/* Each of values, for one variable, the others unset. */
static void each(const char *name, const char *const *values, bool forbids)
{
    for (; NULL != *values; values++) {
        setenv(name, *values, 1);
        if (forbids) {
            expect_forbidden(1, name);
            expect_forbidden(0, name);
            expect_forbidden(-1, name);
        } else {
            expect_allowed();
        }
        unsetenv(name);
        expect_allowed();
    }
}

static void vetoes_forbid(void **state)
{
    (void) state;
    select_sim();
    /* NCCL reads a number, and takes what is none for 0 */
    static const char *const off[] = {"0", "00", "0x0", " 0", "-0", "+0", "0 ", "false", "no", "off", "n", NULL};
    static const char *const on[] = {"", "1", "2", "0x1", " 1", "-1", "99999999999999999999", NULL};
    each("NCCL_NVLS_ENABLE", off, true);
    each("NCCL_NVLS_ENABLE", on, false);

    /* NVSHMEM takes a switch that is set for true, but for what begins like 0, no or false */
    static const char *const disabled[] = {"1", "2", "-1", "", "true", "TRUE", "yes", "Y", "on", "t", "disabled", NULL};
    static const char *const enabled[] = {"0", "00", "no", "No", "N", "false", "FALSE", "f", NULL};
    for (size_t i = 1; i < VETOES; i++) {
        each(vetoes[i], disabled, true);
        each(vetoes[i], enabled, false);
    }
}

static void all_vetoes_at_once(void **state)
{
    (void) state;
    select_sim();
    setenv(vetoes[0], "0", 1);
    setenv(vetoes[1], "1", 1);
    setenv(vetoes[2], "1", 1);
    expect_forbidden(1, vetoes[0]);
    unsetenv(vetoes[0]);
    expect_forbidden(1, vetoes[1]);
    unsetenv(vetoes[1]);
    expect_forbidden(1, vetoes[2]);
    unsetenv(vetoes[2]);
    expect_allowed();
}

static void parameter_forbids(void **state)
{
    (void) state;
    select_sim();
    expect_forbidden(0, "parameter");
    expect_allowed();
    /* what the sites' variables say in favour does not overrule it */
    setenv(vetoes[0], "1", 1);
    setenv(vetoes[1], "0", 1);
    setenv(vetoes[2], "0", 1);
    expect_forbidden(0, "parameter");
    expect_allowed();
}

static void nothing_else_forbids(void **state)
{
    (void) state;
    select_sim();
    static const char *const others[] = {"NCCL_NVLS",           "NVLS_ENABLE",  "NCCL_P2P_DISABLE",
                                         "NVSHMEM_DISABLE_P2P", "NVSHMEM_NVLS", "TORCH_SYMM_MEM_ENABLE_MULTICAST",
                                         "GPUSYM_MULTICAST"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        setenv(others[i], "0", 1);
        expect_allowed();
        setenv(others[i], "1", 1);
        expect_allowed();
        unsetenv(others[i]);
    }
}

/* Who needs the device before there is one has it opened as the first open says; who only looks has not. */
static void opened_when_needed(void **state)
{
    const gpusym_config_t sim = {.device = GPUSYM_DEVICE_SIM}, none = {.device = GPUSYM_DEVICE_NONE};
    (void) state;
    assert_null(gpusym_device_need());
    assert_int_equal(gpusym_open(&none), GPUSYM_SUCCESS);
    assert_null(gpusym_device_need());
    assert_true(gpusym_current.none);
    gpusym_close();
    assert_false(gpusym_current.none);
    assert_int_equal(gpusym_open(&sim), GPUSYM_SUCCESS);
    assert_null(gpusym_device());
    assert_ptr_equal(gpusym_device_need(), &gpusym_device_sim);
    assert_ptr_equal(gpusym_device_need(), &gpusym_device_sim);
    assert_ptr_equal(gpusym_device(), &gpusym_device_sim);
}

/* What one face closes stays for the others; the first open's configuration holds, strings too. */
static void closed_by_the_last(void **state)
{
    char fail[] = "alloc:1";
    const gpusym_config_t first = {.device = GPUSYM_DEVICE_SIM, .heap_size = 1 << 20, .sim_fail = fail};
    const gpusym_config_t second = {.device = GPUSYM_DEVICE_NONE, .heap_size = 2 << 20};
    gpusym_gpu_t *gpu;
    void *p;
    (void) state;
    assert_int_equal(gpusym_open(&first), GPUSYM_SUCCESS);
    assert_int_equal(gpusym_open(&second), GPUSYM_SUCCESS);
    memset(fail, 0, sizeof fail);
    const gpusym_device_t *dev = gpusym_device_need();
    assert_ptr_equal(dev, &gpusym_device_sim);
    assert_int_equal(dev->gpu_open(NULL, &gpu), GPUSYM_SUCCESS);
    assert_int_equal(dev->mem_alloc(gpu, 4096, &p), GPUSYM_ERR_NO_MEMORY);
    assert_null(gpusym_heap());
    assert_int_equal(gpusym_heap_need(gpu), GPUSYM_LACK_NOTHING);
    assert_int_equal(gpusym_heap_size(gpusym_heap()), 1 << 20);
    gpusym_close();
    assert_ptr_equal(gpusym_device_need(), &gpusym_device_sim);
    assert_int_equal(gpusym_heap_need(gpu), GPUSYM_LACK_NOTHING);
    gpusym_close();
    assert_null(gpusym_device());
    assert_null(gpusym_heap());
}

/* A heap that cannot be made is not tried again before the next open. */
static void no_heap(void **state)
{
    const gpusym_config_t config = {.device = GPUSYM_DEVICE_SIM, .heap_size = 1 << 20, .sim_fail = "alloc:1"};
    gpusym_gpu_t *gpu;
    (void) state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gpusym_open(&config), GPUSYM_SUCCESS);
        assert_int_equal(gpusym_device_need()->gpu_open(NULL, &gpu), GPUSYM_SUCCESS);
        assert_int_equal(gpusym_heap_need(gpu), GPUSYM_LACK_MEMORY);
        assert_int_equal(gpusym_heap_need(gpu), GPUSYM_LACK_MEMORY);
        assert_null(gpusym_heap());
        gpusym_close();
    }
}

static char said[256];

static void print(const char *line)
{
    snprintf(said, sizeof said, "%s", line);
}

/* Lines go to the function that the first face gave, from the level on that any face wants, and name the process. */
static void says_so(void **state)
{
    gpusym_config_t config = {.device = GPUSYM_DEVICE_SIM, .print = print};
    (void) state;
    said[0] = '\0';
    assert_int_equal(gpusym_open(&config), GPUSYM_SUCCESS);
    GPUSYM_LOG(1, "not yet");
    assert_string_equal(said, "");
    config.verbose = 2;
    assert_int_equal(gpusym_open(&config), GPUSYM_SUCCESS);
    GPUSYM_LOG(3, "not this");
    assert_string_equal(said, "");
    assert_non_null(gpusym_device_need());
    assert_string_equal(said, "[this host] gpusym: device sim\n");
    gpusym_log_name(12, "node");
    GPUSYM_LOG(1, "%s", "this");
    assert_string_equal(said, "[node:rank 12] gpusym: this\n");
    gpusym_log_name(GPUSYM_LOG_NO_RANK, "this host");
    gpusym_close();
    gpusym_close();
    GPUSYM_LOG(1, "no more");
    assert_string_equal(said, "[node:rank 12] gpusym: this\n");
}

static uint64_t traced[2];

static void trace(gpusym_trace_event_t event, uint64_t a, uint64_t b)
{
    if (GPUSYM_TRACE_ALLOC == event) {
        traced[0] = a;
        traced[1] = b;
    }
}

/* A failed allocation says how much, and why; a tracer gets the event. */
static void failed_memory_is_said(void **state)
{
    const gpusym_config_t config = {.device = GPUSYM_DEVICE_SIM, .sim_fail = "alloc:1", .verbose = 2, .print = print};
    gpusym_gpu_t *gpu;
    void *p;
    (void) state;
    assert_int_equal(gpusym_open(&config), GPUSYM_SUCCESS);
    const gpusym_device_t *dev = gpusym_device_need();
    assert_int_equal(dev->gpu_open(NULL, &gpu), GPUSYM_SUCCESS);
    __atomic_store_n(&gpusym_trace_hook, trace, __ATOMIC_RELEASE);
    assert_int_equal(gpusym_mem_alloc(dev, gpu, 12345, &p), GPUSYM_ERR_NO_MEMORY);
    assert_true(12345 == traced[0] && 0 == traced[1]);
    assert_non_null(strstr(said, "12345 bytes"));
    assert_int_equal(gpusym_mem_alloc(dev, gpu, 54321, &p), GPUSYM_SUCCESS);
    assert_true(54321 == traced[0] && 1 == traced[1]);
    __atomic_store_n(&gpusym_trace_hook, NULL, __ATOMIC_RELEASE);
    assert_string_equal(gpusym_trace_name(GPUSYM_TRACE_ALLOC), "alloc");
    assert_string_equal(gpusym_trace_name(GPUSYM_TRACE_COUNT), "unknown");
    assert_int_equal(dev->mem_free(gpu, p), GPUSYM_SUCCESS);
}

/* A failed call is said with its error, which stays in errno. */
static void failed_calls_are_said(void **state)
{
    const gpusym_config_t config = {.device = GPUSYM_DEVICE_NONE, .verbose = 2, .print = print};
    (void) state;
    assert_int_equal(gpusym_open(&config), GPUSYM_SUCCESS);
    errno = ENOSPC;
    gpusym_log_call("mmap", "this test");
    assert_int_equal(errno, ENOSPC);
    assert_non_null(strstr(said, "mmap"));
    assert_non_null(strstr(said, "this test"));
    assert_non_null(strstr(said, strerror(ENOSPC)));
    gpusym_log_no_memory("this test");
    assert_int_equal(errno, ENOSPC);
    assert_string_equal(said, "[this host] gpusym: out of host memory: this test\n");
}

/* Memory that MPI hands out is the GPU's only while collectives are served. */
static void memory_for_collectives(void **state)
{
    const gpusym_config_t config = {.device = GPUSYM_DEVICE_SIM};
    (void) state;
    assert_int_equal(gpusym_open(&config), GPUSYM_SUCCESS);
    assert_null(gpusym_device_for_memory());
    gpusym_collectives_serve(true);
    assert_ptr_equal(gpusym_device_for_memory(), &gpusym_device_sim);
    gpusym_collectives_serve(false);
    assert_null(gpusym_device_for_memory());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(simulator_by_name, clean, clean),
        cmocka_unit_test_setup_teardown(first_choice_stays, clean, clean),
        cmocka_unit_test_setup_teardown(auto_is_cuda_or_none, clean, clean),
        cmocka_unit_test_setup_teardown(refusals_say_why, clean, clean),
        cmocka_unit_test_setup_teardown(vetoes_forbid, clean, clean),
        cmocka_unit_test_setup_teardown(all_vetoes_at_once, clean, clean),
        cmocka_unit_test_setup_teardown(parameter_forbids, clean, clean),
        cmocka_unit_test_setup_teardown(nothing_else_forbids, clean, clean),
        cmocka_unit_test_setup_teardown(opened_when_needed, clean, clean),
        cmocka_unit_test_setup_teardown(closed_by_the_last, clean, clean),
        cmocka_unit_test_setup_teardown(no_heap, clean, clean),
        cmocka_unit_test_setup_teardown(says_so, clean, clean),
        cmocka_unit_test_setup_teardown(failed_memory_is_said, clean, clean),
        cmocka_unit_test_setup_teardown(failed_calls_are_said, clean, clean),
        cmocka_unit_test_setup_teardown(memory_for_collectives, clean, clean),
    };
    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
