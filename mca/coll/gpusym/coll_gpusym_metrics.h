/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Metrics (coll_gpusym_metrics): a file of this process in Prometheus's text format, for the node exporter's textfile
 * collector. It is complete at any time: each one is written beside it, and renamed.
 */
#ifndef MCA_COLL_GPUSYM_METRICS_H
#define MCA_COLL_GPUSYM_METRICS_H

/* Writes the first file, and starts the thread that writes the others, if coll_gpusym_metrics names one. host: name of
 * this host, copied. */
void coll_gpusym_metrics_start(int world_rank, const char *host);
/* While MPI_COMM_SELF is made: plans the last file for MPI_Finalize. */
void coll_gpusym_metrics_plan(void);
/* Ends the thread and writes the last file, unless that has been done. */
void coll_gpusym_metrics_stop(void);

#endif
