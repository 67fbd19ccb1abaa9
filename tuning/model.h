/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A model of what a call costs: the sum of its parts (a launch, flags, data over the wire), each by a measured
 * constant (model.def); that of the switch, for multicast kernels, is a published one. It is for calls one after the
 * other, by ranks that come at the same time, on GPUs that all reach each other by NVLink. Of blocks and threads it
 * knows that kernels that store need enough of them. No choice asks it, but those of numbers of ranks that were not
 * measured, and of multicast, follow it (test/unit/test_model.c). docs/performance.md has its errors.  Pure C, no MPI,
 * no CUDA.
 */
#ifndef GPUSYM_TUNING_MODEL_H
#define GPUSYM_TUNING_MODEL_H

#include "tuning/geometry.h"

enum gpusym_model_part {
#define GPUSYM_MODEL(ID, value, unit, doc) GPUSYM_MODEL_##ID,
#define GPUSYM_MODEL_PUBLISHED(ID, value, unit, source, doc) GPUSYM_MODEL_##ID,
#include "tuning/model.def"
    GPUSYM_MODEL_PARTS
};

/* Sets how often, or for how many MiB, a call has each part: call served by choice, which has an algorithm. With rings
 * and trees it is as if they went over as many links as there are. */
void gpusym_model_count(const gpusym_tuning_call_t *call, const gpusym_tuning_choice_t *choice,
                        double part[GPUSYM_MODEL_PARTS]);

/* What these parts cost with such constants: data go over the wire as fast as the wire or, if that takes longer, as the
 * threads allow. */
double gpusym_model_sum(const double part[GPUSYM_MODEL_PARTS], const double value[GPUSYM_MODEL_PARTS]);

/* The time of the call in nanoseconds, on GPUs of that compute capability, times 10. 0: there is no prediction: of
 * other GPUs and the simulator, or where not all ranks reach each other by NVLink. */
double gpusym_model_predict(const gpusym_tuning_call_t *call, const gpusym_tuning_choice_t *choice, int cc);

/* The name of these GPUs. */
const char *gpusym_model_gpus(void);

#endif
