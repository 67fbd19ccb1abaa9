/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Reductions by the CPU: see reduce.h.
 */
#include "mca/osc/gpusym/reduce.h"

#include <stdlib.h>

/* Elements that ompi_op_reduce gets at a time: an int counts them. */
#define REDUCE_MAX ((size_t) 1 << 28)

static void reduce_array(struct ompi_op_t *op, ompi_datatype_t *basic, char *in, char *inout, size_t n)
{
    const size_t extent = (size_t) (basic->super.ub - basic->super.lb);

    for (size_t at = 0; at < n; at += REDUCE_MAX) {
        const size_t some = n - at < REDUCE_MAX ? n - at : REDUCE_MAX;
        ompi_op_reduce(op, in + at * extent, inout + at * extent, (int) some, basic);
    }
}

int osc_gpusym_reduce(struct ompi_op_t *op, ompi_datatype_t *basic, char *in, char *inout, size_t bytes)
{
    const size_t n = bytes / basic->super.size;
    gpusym_layout_t l;

    gpusym_layout_find(n, basic, &l);
    if (GPUSYM_LAYOUT_RUN == l.kind) {
        reduce_array(op, basic, in, inout, n);
        return OMPI_SUCCESS;
    }
    char *array = calloc(2 * n, (size_t) (basic->super.ub - basic->super.lb)), *second;
    if (NULL == array) {
        return MPI_ERR_NO_MEM;
    }
    second = array + n * (size_t) (basic->super.ub - basic->super.lb);
    (void) gpusym_layout_scatter(&l, array, in, bytes);
    (void) gpusym_layout_scatter(&l, second, inout, bytes);
    reduce_array(op, basic, array, second, n);
    (void) gpusym_layout_gather(&l, second, inout, bytes);
    free(array);
    return OMPI_SUCCESS;
}
