/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Accumulates: the functions of ompi_osc_base_module_t. Errors as of osc_gpusym_target, and MPI_ERR_TYPE: the basic
 * types of origin and target differ, or one of them has several; MPI_ERR_TRUNCATE: there
 * is not room for all, or what is fetched is longer than the origin.
 */
#ifndef OSC_GPUSYM_ACCUMULATE_H
#define OSC_GPUSYM_ACCUMULATE_H

#include "mca/osc/gpusym/window.h"

int osc_gpusym_accumulate(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type,
                          int target, ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type,
                          struct ompi_op_t *op, struct ompi_win_t *win);
int osc_gpusym_raccumulate(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type,
                           int target, ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type,
                           struct ompi_op_t *op, struct ompi_win_t *win, struct ompi_request_t **request);
int osc_gpusym_get_accumulate(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type,
                              void *result, gpusym_count_t result_count, struct ompi_datatype_t *result_type,
                              int target, ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type,
                              struct ompi_op_t *op, struct ompi_win_t *win);
int osc_gpusym_rget_accumulate(const void *origin, gpusym_count_t origin_count, struct ompi_datatype_t *origin_type,
                               void *result, gpusym_count_t result_count, struct ompi_datatype_t *result_type,
                               int target, ptrdiff_t disp, gpusym_count_t count, struct ompi_datatype_t *type,
                               struct ompi_op_t *op, struct ompi_win_t *win, struct ompi_request_t **request);
int osc_gpusym_fetch_and_op(const void *origin, void *result, struct ompi_datatype_t *type, int target, ptrdiff_t disp,
                            struct ompi_op_t *op, struct ompi_win_t *win);
int osc_gpusym_compare_and_swap(const void *origin, const void *compare, void *result, struct ompi_datatype_t *type,
                                int target, ptrdiff_t disp, struct ompi_win_t *win);

#endif
