/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The face to libgpusym: collectives on streams of the program (mca/common/gpusym/streams.h).
 */
#ifndef MCA_COLL_GPUSYM_STREAM_H
#define MCA_COLL_GPUSYM_STREAM_H

/* Offers it, and takes it back. */
void coll_gpusym_streams_open(void);
void coll_gpusym_streams_close(void);

#endif
