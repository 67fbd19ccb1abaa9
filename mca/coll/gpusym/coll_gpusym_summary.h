/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The summary of a job: how the calls and messages of all ranks were served, printed by rank 0 in MPI_Finalize.
 */
#ifndef MCA_COLL_GPUSYM_SUMMARY_H
#define MCA_COLL_GPUSYM_SUMMARY_H

/* Has the summary printed in MPI_Finalize, if coll_gpusym_summary is set, and the trace written, if there is one.
 * Called while MPI_COMM_SELF is set up. */
void coll_gpusym_summary_plan(void);

#endif
