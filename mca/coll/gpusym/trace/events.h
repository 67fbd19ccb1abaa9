/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI_T's events (MPI 4, Open MPI 6): a call on GPU memory begins; it has ended. Calls are recorded for that while an
 * event has a callback. On other versions of Open MPI these functions do nothing.
 */
#ifndef MCA_COLL_GPUSYM_TRACE_EVENTS_H
#define MCA_COLL_GPUSYM_TRACE_EVENTS_H

#include "mca/coll/gpusym/args/args.h"
#include "mca/coll/gpusym/trace/record.h"

/* Registers ompi.coll_gpusym_<collective>_begin and _end, as the component's; a verbose line if it cannot. */
void coll_gpusym_events_register(const mca_base_component_t *component);
/* A call of that record has begun, or is complete. Without a lock: callbacks run in here. */
void coll_gpusym_events_begin(uint32_t number);
void coll_gpusym_events_end(uint32_t number);
/* The component is closed: its functions are not called any more. */
void coll_gpusym_events_forget(void);

#endif
