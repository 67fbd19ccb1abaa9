/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI_Allreduce: host buffers are handed on, device buffers go to a kernel where all ranks have them and
 * a kernel serves them, and through the host where not.
 */
#include "coll_gpusym_team.h"

#define COUNTERS (&mca_coll_gpusym_component.counters[COLL_GPUSYM_ALLREDUCE])

/* A call's arguments, and what its buffers are. */
typedef struct {
    mca_coll_gpusym_module_t *module;
    const void *sbuf;
    void *rbuf;
    gpusym_count_t count;
    struct ompi_datatype_t *dtype;
    struct ompi_op_t *op;
    gpusym_mem_t smem, rmem;
} args_t;

static bool on_gpu(const gpusym_mem_t *mem)
{
    return GPUSYM_MEM_DEVICE == mem->kind || GPUSYM_MEM_MANAGED == mem->kind;
}

static int pass(const args_t *a)
{
    coll_gpusym_count(&COUNTERS->passed);
    return a->module->saved.allreduce(a->sbuf, a->rbuf, a->count, a->dtype, a->op, a->module->comm,
                                      a->module->saved.allreduce_module);
}

/* The buffer that says which GPU is meant. */
static const gpusym_mem_t *where(const args_t *a)
{
    if (GPUSYM_MEM_DEVICE == a->rmem.kind || GPUSYM_MEM_DEVICE != a->smem.kind) {
        return on_gpu(&a->rmem) ? &a->rmem : &a->smem;
    }
    return &a->smem;
}

static int stage(const args_t *a, unsigned reason)
{
    coll_gpusym_count(&COUNTERS->staged);
    coll_gpusym_count(&COUNTERS->reason[reason]);
    return coll_gpusym_stage_allreduce(a->module, a->sbuf, a->rbuf, a->count, a->dtype, a->op, where(a));
}

/* One rank: the result is the input. */
static int alone(const args_t *a)
{
    const gpusym_device_t *dev = mca_coll_gpusym_component.dev;
    ptrdiff_t gap;
    gpusym_gpu_t *gpu;
    const size_t span = (size_t)opal_datatype_span(&a->dtype->super, (int64_t)a->count, &gap);

    if (MPI_IN_PLACE != a->sbuf && span > 0) {
        if (!ompi_datatype_is_contiguous_memory_layout(a->dtype, a->count > 1 ? 2 : 1)) {
            return stage(a, COLL_GPUSYM_R_TYPE);
        }
        if (GPUSYM_SUCCESS != dev->gpu_open(where(a), &gpu) ||
            GPUSYM_SUCCESS != dev->copy(gpu, (char *)a->rbuf + gap, (const char *)a->sbuf + gap, span)) {
            char name[COLL_GPUSYM_COMM_NAME_MAX];
            coll_gpusym_help("gpu-error", 0, "of the buffer", coll_gpusym_comm_name(a->module->comm, name, sizeof name),
                             "MPI_Allreduce", dev->error());
            return MPI_ERR_OTHER;
        }
    }
    coll_gpusym_count(&COUNTERS->native);
    coll_gpusym_count(&COUNTERS->copied);
    return MPI_SUCCESS;
}

/* Whether two buffers lie on different GPUs, or in different contexts of one. */
static bool elsewhere(const gpusym_mem_t *a, const gpusym_mem_t *b)
{
    return GPUSYM_MEM_DEVICE == a->kind && GPUSYM_MEM_DEVICE == b->kind &&
           (a->gpu != b->gpu || (NULL != a->context && NULL != b->context && a->context != b->context));
}

/* What we post: native, or why not. */
static uint8_t kind(const args_t *a, int op, int type)
{
    coll_gpusym_team_t *team = a->module->team;
    int reason = -1;
    if (COLL_GPUSYM_ALG_STAGED == mca_coll_gpusym_component.allreduce_algorithm) {
        reason = COLL_GPUSYM_R_FORCED;
    } else if (op < 0) {
        reason = ompi_op_is_intrinsic(a->op) ? COLL_GPUSYM_R_OP : COLL_GPUSYM_R_USER_OP;
    } else if (type < 0) {
        reason = COLL_GPUSYM_R_TYPE;
    } else if (!gpusym_op_valid((unsigned)op, (unsigned)type)) {
        reason = COLL_GPUSYM_R_OP;
    } else if (GPUSYM_MEM_HOST == a->smem.kind || GPUSYM_MEM_HOST == a->rmem.kind) {
        reason = COLL_GPUSYM_R_MIXED; /* one buffer on the host, one on the GPU */
    } else if (elsewhere(&a->smem, &a->rmem) || !coll_gpusym_team_owns(team, &a->rmem) || !coll_gpusym_team_owns(team, &a->smem)) {
        reason = COLL_GPUSYM_R_OTHER_GPU;
    }
    return reason < 0 ? GPUSYM_KIND_NATIVE : (uint8_t)(GPUSYM_KIND_STAGE + reason);
}

static int on_device(const args_t *a)
{
    const int op = coll_gpusym_op(a->op), type = coll_gpusym_type(a->dtype);
    coll_gpusym_call_t call = {.module = a->module,
                               .coll = COLL_GPUSYM_ALLREDUCE,
                               .name = "MPI_Allreduce",
                               .where = *where(a),
                               .in = MPI_IN_PLACE == a->sbuf ? a->rbuf : a->sbuf,
                               .out = a->rbuf,
                               .out_local = GPUSYM_MEM_DEVICE == a->rmem.kind,
                               .bytes = (uint64_t)a->count * (type < 0 ? a->dtype->super.size : gpusym_type_bytes((unsigned)type)),
                               .op = (unsigned)op,
                               .type = (unsigned)type};

    coll_gpusym_call_start(&call, kind(a, op, type));
    coll_gpusym_call_wait(&call);
    if (COLL_GPUSYM_CALL_STAGE == call.state) {
        return stage(a, (unsigned)call.reason);
    }
    if (MPI_SUCCESS == call.error) {
        coll_gpusym_count(&COUNTERS->native);
        coll_gpusym_count(&COUNTERS->algorithm[call.algorithm]);
    }
    return call.error;
}

/* Asks the device what the buffers are, where their first bytes lie: an address may be MPI_BOTTOM. */
static bool any_on_gpu(args_t *a)
{
    const gpusym_device_t *dev = mca_coll_gpusym_component.dev;
    const uintptr_t first = (uintptr_t)a->dtype->super.true_lb;
    dev->query((const void *)((uintptr_t)a->rbuf + first), &a->rmem);
    if (MPI_IN_PLACE == a->sbuf) {
        a->smem = a->rmem;
    } else {
        dev->query((const void *)((uintptr_t)a->sbuf + first), &a->smem);
    }
    return on_gpu(&a->rmem) || on_gpu(&a->smem);
}

int coll_gpusym_allreduce(const void *sbuf, void *rbuf, gpusym_count_t count, struct ompi_datatype_t *dtype,
                          struct ompi_op_t *op, struct ompi_communicator_t *comm, mca_coll_base_module_t *module)
{
    mca_coll_gpusym_module_t *m = (mca_coll_gpusym_module_t *)module;
    args_t a = {m, sbuf, rbuf, count, dtype, op, {0}, {0}};
    const bool grouped = !OMPI_COMM_IS_INTER(comm) && ompi_comm_size(comm) > 1;

    if (0 == count) {
        return MPI_SUCCESS;
    }
    if (m->passthrough) {
        return pass(&a);
    }
    if (grouped && NULL == m->team) {
        const int rv = coll_gpusym_team_create(m);
        if (MPI_SUCCESS != rv || m->passthrough) {
            return MPI_SUCCESS != rv ? rv : pass(&a);
        }
    }
    const bool device = NULL != coll_gpusym_device() && any_on_gpu(&a);
    if (!grouped) {
        if (!device) {
            return pass(&a);
        }
        return OMPI_COMM_IS_INTER(comm) ? stage(&a, COLL_GPUSYM_R_INTER) : alone(&a);
    }
    if (m->team->broken) { /* what went wrong has been said */
        return MPI_ERR_OTHER;
    }
    if (m->team->reason >= 0) { /* agreed for good: staged and passed calls meet in the previous module */
        return device ? stage(&a, (unsigned)m->team->reason) : pass(&a);
    }
    if (!device) {
        const int rv = coll_gpusym_call_pass(m, "MPI_Allreduce", (uint64_t)count * dtype->super.size);
        return MPI_SUCCESS != rv ? rv : pass(&a);
    }
    return on_device(&a);
}
