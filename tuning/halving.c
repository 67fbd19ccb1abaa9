/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Successive halving: see halving.h.
 */
#include "tuning/halving.h"

#include <stdbool.h>

/* Sorts order[n] by best[], which is indexed by its elements: few, and stable. */
static void sort_by_time(unsigned n, unsigned *order, const double *best)
{
    for (unsigned i = 1; i < n; i++) {
        const unsigned moved = order[i];
        unsigned k = i;
        for (; k > 0 && best[order[k - 1]] > best[moved]; k--) {
            order[k] = order[k - 1];
        }
        order[k] = moved;
    }
}

unsigned gpusym_tuning_halve(unsigned n, unsigned calls, gpusym_tuning_measure_t *measure, void *arg, unsigned *order)
{
    double best[GPUSYM_TUNING_CANDIDATES_MAX] = {0};
    unsigned can = 0, last = n;

    for (unsigned i = 0; i < n; i++) {
        best[i] = measure(arg, i, calls);
        if (best[i] >= 0) {
            order[can++] = i;
        } else {
            order[--last] = i;
        }
    }
    sort_by_time(can, order, best);
    for (unsigned left = can; left > 1;) {
        left = (left + 1) / 2;
        calls *= 2;
        for (unsigned i = 0; i < left && left > 1; i++) {
            const double seconds = measure(arg, order[i], calls);
            best[order[i]] = seconds >= 0 && seconds < best[order[i]] ? seconds : best[order[i]];
        }
        sort_by_time(left, order, best);
    }
    return can;
}
