/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * On two ranks or more, a kernel of the program's own stores to an illegal address on the last rank, which spoils the
 * GPU for that process: CUDA repeats the error at every later call. A collective on GPU memory with that rank, or a
 * message of it, then ends with an error on all that take part, or is right: ranks that share a GPU still reach its
 * memory. Host memory, and communicators without it, go on; all ranks end by MPI_Finalize. --messages: it has sent and
 * received such messages before.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "mca/common/gpusym/device/sim/sim.h"
#include "test/mpi/check.h"

enum { COUNT = 1000, LONG = 300000 };

static const char illegal[] = ".version 6.0\n"
                              ".target sm_60\n"
                              ".address_size 64\n"
                              ".visible .entry illegal()\n"
                              "{\n"
                              "    .reg .b64 %at;\n"
                              "    .reg .b32 %one;\n"
                              "    mov.u64 %at, 16;\n"
                              "    mov.u32 %one, 1;\n"
                              "    st.global.u32 [%at], %one;\n"
                              "    ret;\n"
                              "}\n";

/* The driver, declared by hand as in mem.c. */
static struct {
    int (*module_load)(void **module, const void *image);
    int (*get_function)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void *stream, void **parameters, void **extra);
    void *function;
} cu;

static int rank, size;
static bool acquainted; /* by messages before */
static int *in, *out;   /* of LONG integers, on the GPU */

static bool find(void *lib, void *function, const char *name)
{
    void *at = dlsym(lib, name);
    memcpy(function, &at, sizeof at);
    return NULL != at;
}

/* CUDA: once, while the GPU works. */
static bool load_kernel(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *module;
    return NULL != lib && find(lib, &cu.module_load, "cuModuleLoadData") &&
           find(lib, &cu.get_function, "cuModuleGetFunction") && find(lib, &cu.launch, "cuLaunchKernel") &&
           0 == cu.module_load(&module, illegal) && 0 == cu.get_function(&cu.function, module, "illegal");
}

static bool break_gpu(void)
{
    if (0 == strcmp("cuda", mem_device())) {
        return 0 == cu.launch(cu.function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    }
    gpusym_sim_break();
    return true;
}

static bool is_last(void)
{
    return rank == size - 1;
}

static void fill(int value)
{
    static int image[LONG];
    for (int i = 0; i < LONG; i++) {
        image[i] = value + i % 7;
    }
    mem_write(in, image, sizeof image);
}

/* Whether out has the sums over n ranks that have filled with their number plus 1. */
static bool has_sums(int n, int count)
{
    static int image[LONG];
    mem_read(image, out, sizeof *out * (size_t) count);
    for (int i = 0; i < count; i++) {
        if (image[i] != n * (n + 1) / 2 + n * (i % 7)) {
            return false;
        }
    }
    return true;
}

static bool sums_are_right(MPI_Comm comm, int count)
{
    int n, me;
    MPI_Comm_size(comm, &n);
    MPI_Comm_rank(comm, &me);
    fill(me + 1);
    return MPI_SUCCESS == MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm) && has_sums(n, count);
}

static bool host_sums_are_right(MPI_Comm comm)
{
    int mine = rank + 1, sum = 0;
    return MPI_SUCCESS == MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm) && size * (size + 1) / 2 == sum;
}

static void say(check_t *t, bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "faulty: FAIL on rank %d: %s\n", rank, what);
    }
    check_result(t, good);
}

static bool fails(int rv)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    return MPI_SUCCESS != rv && MPI_SUCCESS == MPI_Error_string(rv, text, &length) && 0 < length;
}

/* From the faulty rank, which has filled with its number plus 1, to rank 0. */
static void pass_on(check_t *t, MPI_Comm comm)
{
    const int counts[] = {1, COUNT, LONG};
    int last = -1;
    for (int i = 0; i < 3; i++) {
        if (is_last()) {
            (void) MPI_Send(in, counts[i], MPI_INT, 0, 1, comm);
        } else if (0 == rank) {
            const int rv = MPI_Recv(out, counts[i], MPI_INT, size - 1, 1, comm, MPI_STATUS_IGNORE);
            if (MPI_SUCCESS == rv) {
                mem_read(&last, out + counts[i] - 1, sizeof last);
            }
            say(t, fails(rv) || last == size + (counts[i] - 1) % 7, "a message of the faulty rank");
            continue;
        }
        check_absent(t);
    }
}

static void run(check_t *t)
{
    MPI_Comm work, messages, others, host;
    MPI_Comm_dup(MPI_COMM_WORLD, &work);
    MPI_Comm_dup(MPI_COMM_WORLD, &messages);
    MPI_Comm_dup(MPI_COMM_WORLD, &host);
    MPI_Comm_split(MPI_COMM_WORLD, is_last(), rank, &others);
    MPI_Comm_set_errhandler(work, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(messages, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(others, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(host, MPI_ERRORS_RETURN);
    say(t, sums_are_right(work, COUNT), "sums before the fault");
    say(t, sums_are_right(others, COUNT), "sums of the other ranks before the fault");
    fill(rank + 1);
    if (acquainted) {
        const int rv = MPI_Sendrecv(in, LONG, MPI_INT, (rank + 1) % size, 1, out, LONG, MPI_INT,
                                    (rank + size - 1) % size, 1, messages, MPI_STATUS_IGNORE);
        say(t, MPI_SUCCESS == rv, "messages before the fault");
    }
    say(t, !is_last() || break_gpu(), "the faulty kernel is launched");
    for (int i = 0; i < 3; i++) {
        const int rv = MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, work);
        say(t, fails(rv) || (MPI_SUCCESS == rv && (is_last() || has_sums(size, COUNT))),
            "a collective behind the fault");
    }
    pass_on(t, messages);
    say(t, host_sums_are_right(host), "sums on the host");
    for (int i = 0; i < 5; i++) {
        say(t, is_last() || sums_are_right(others, 0 == i % 2 ? COUNT : LONG), "sums of the other ranks");
    }
    say(t, host_sums_are_right(host), "sums on the host again");
    MPI_Comm_free(&others);
    MPI_Comm_free(&host);
    MPI_Comm_free(&messages);
    MPI_Comm_free(&work);
}

int main(int argc, char **argv)
{
    check_t t;
    check_init(&argc, &argv, "faulty", MPI_THREAD_SINGLE);
    acquainted = check_flag("--messages");
    check_arguments_end("[--messages]");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!mem_have(MEM_DEVICE) || size < 2 || (0 == strcmp("cuda", mem_device()) && !load_kernel())) {
        fprintf(stderr, "faulty: needs GPUs and two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    in = mem_alloc(MEM_DEVICE, sizeof *in * LONG);
    out = mem_alloc(MEM_DEVICE, sizeof *out * LONG);
    check_start(&t, "faulty", MPI_COMM_WORLD);
    run(&t);
    const long failed = check_end(&t);
    check_print("faulty", t.passed, failed);
    if (is_last()) { /* nothing can be freed */
        MPI_Finalize();
        return 0 != failed;
    }
    return check_fini(failed);
}
