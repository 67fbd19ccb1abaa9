/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Open MPI's mpi-ext.h, for programs that run with gpusym: MPIX_CUDA_AWARE_SUPPORT tells of the Open MPI that it was
 * built with CUDA, which says nothing of the components that it loads.  Installed as <includedir>/gpusym/mpi-ext.h, for
 * a compiler that looks there before Open MPI's own folders (CPATH, test/env.sh).
 *
 * It promises that device pointers may be given to MPI where there is a GPU; MPIX_Query_cuda_support() answers, when
 * the program runs, whether there is.
 */
#ifndef GPUSYM_MPI_EXT_H
#define GPUSYM_MPI_EXT_H

#pragma GCC system_header /* #include_next is no standard C */

#ifndef __has_include_next
#include_next <mpi-ext.h>
#elif __has_include_next(<mpi-ext.h>)
#include_next <mpi-ext.h>
#endif

#ifdef MPIX_CUDA_AWARE_SUPPORT
#undef MPIX_CUDA_AWARE_SUPPORT
#else /* an Open MPI without this extension; libgpusym_mpi has the function */
/** MPIX_Query_cuda_support - whether device pointers may be given to MPI
 *
 * Returns 1 where the MPI calls of this process accept device pointers, 0 otherwise.
 * With gpusym it returns 1 from `MPI_Init` to `MPI_Finalize` where there is a GPU, or the simulator, unless
 * `coll_gpusym_p2p` is `off`.
 * On Open MPI 4.1 `libgpusym_mpi.so` answers, which must be preloaded; without gpusym, Open MPI itself does.
 *
 * The macro `MPIX_CUDA_AWARE_SUPPORT` is 1 in programs that are compiled with gpusym's `mpi-ext.h`, which a compiler
 * finds if `CPATH` names its folder, `gpusym` in the folder of headers: device pointers may be given to MPI if this
 * function says so at run time.
 */
#ifdef __cplusplus
extern "C"
#endif
    int
    MPIX_Query_cuda_support(void);
#endif
#define MPIX_CUDA_AWARE_SUPPORT 1

#endif
