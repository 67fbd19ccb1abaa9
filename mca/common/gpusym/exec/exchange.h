/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The host's side of an exchange with the copier (copier.h, kernels/work.h): the lines in pinned memory.  Each is
 * marked by the number of the copier's command, gpusym_copier_number().
 */
#ifndef GPUSYM_COMMON_EXEC_EXCHANGE_H
#define GPUSYM_COMMON_EXEC_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/work.h"

/* Clears the lines of so many inputs, and of the answer, of `bytes` bytes each, before the command: those of another
 * lane may have had the same numbers. */
void gpusym_exchange_clear(gpusym_exchange_t *x, uint32_t nin, uint32_t bytes);
/* Whether all inputs have come; then in[0..nin-1] has them. */
bool gpusym_exchange_inputs(const gpusym_exchange_t *x, uint32_t nin, uint32_t bytes, uint32_t number,
                            char (*in)[GPUSYM_EXCHANGE_MAX]);
/* Gives the answer, which goes to all outputs. */
void gpusym_exchange_answer(gpusym_exchange_t *x, const void *answer, uint32_t bytes, uint32_t number);
/* Once the command has ended: whether it has not waited for all of the answer. */
bool gpusym_exchange_late(const gpusym_exchange_t *x, uint32_t number);

#endif
