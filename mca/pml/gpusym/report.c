/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Errors of messages of device memory, to the user.
 */
#include "mca/pml/gpusym/report.h"

#include "mca/common/gpusym/gpusym.h"

#define GPU_ERROR                                                                        \
    "Rank %d of %s, in a message of device memory with %s, tag %d:\n"                    \
    "the GPU reports an error:\n"                                                        \
    "    %s\n"                                                                           \
    "\n"                                                                                 \
    "An illegal address or instruction comes from an earlier kernel (CUDA repeats\n"     \
    "such an error at every later call): run the program under compute-sanitizer.\n"     \
    "The kernel log reports hardware faults (dmesg, \"Xid\").  After any other error,\n" \
    "check that the buffer's memory has not been freed, and is as long as the call\n"    \
    "says.  If so, gpusym is at fault: please report these lines and the datatype.\n"    \
    "The message ends with MPI_ERR_OTHER.\n"

#define NO_MEMORY                                                     \
    "Rank %d of %s, in a message of device memory with %s, tag %d:\n" \
    "%zu bytes of host memory could not be allocated.\n"              \
    "\n"                                                              \
    "Free memory of the host.  The message ends with MPI_ERR_NO_MEM.\n"

#define CORRUPT                                                                       \
    "Rank %d of %s, in a message of device memory with %s, tag %d:\n"                 \
    "the memory by which the two processes agree on the message holds a value that\n" \
    "neither of them writes.  The message ends with MPI_ERR_OTHER.\n"                 \
    "\n"                                                                              \
    "One of these processes has written out of bounds: run the program under\n"       \
    "valgrind, or with -fsanitize=address.\n"                                         \
    "To run without that memory: --mca coll_gpusym_p2p staged.\n"

#define DEAD                                                                                           \
    "Rank %d of %s, in a message of device memory with %s, tag %d:\n"                                  \
    "the process of that rank (pid %d) has died.\n"                                                    \
    "\n"                                                                                               \
    "The message ends with " GPUSYM_ERR_PROC_FAILED_NAME ".  Look for the first error that the dead\n" \
    "rank printed: a signal, an out-of-memory kill, an exit without MPI_Finalize.\n"

#define PEER                                                                        \
    "Rank %d of %s, in a message of device memory with %s, tag %d:\n"               \
    "the process of that rank (pid %d) could not do its part of the transfer.\n"    \
    "\n"                                                                            \
    "The message ends with MPI_ERR_OTHER.  Look for the error that this rank has\n" \
    "printed.\n"

#define UNREACHABLE                                                                  \
    "Rank %d of %s, in a message of device memory with %s, tag %d:\n"                \
    "host memory that the process of that rank (pid %d) shares cannot be mapped.\n"  \
    "\n"                                                                             \
    "The message ends with MPI_ERR_OTHER.  Raise the limit on descriptors of this\n" \
    "process (ulimit -n), or run with --mca coll_gpusym_p2p staged.\n"

/* "rank 3", or "any rank". */
static const char *format_peer(int peer, char *text, size_t size)
{
    if (peer < 0) {
        return "any rank";
    }
    snprintf(text, size, "rank %d", peer);
    return text;
}

int pml_gpusym_report_gpu(struct ompi_communicator_t *comm, int peer, int tag)
{
    char name[GPUSYM_COMM_LABEL_MAX], who[32];
    gpusym_help(GPU_ERROR, ompi_comm_rank(comm), gpusym_comm_label(comm, name, sizeof name),
                format_peer(peer, who, sizeof who), tag, gpusym_current.dev->error());
    return MPI_ERR_OTHER;
}

int pml_gpusym_report_memory(struct ompi_communicator_t *comm, int peer, int tag, size_t bytes)
{
    char name[GPUSYM_COMM_LABEL_MAX], who[32];
    gpusym_help(NO_MEMORY, ompi_comm_rank(comm), gpusym_comm_label(comm, name, sizeof name),
                format_peer(peer, who, sizeof who), tag, bytes);
    return MPI_ERR_NO_MEM;
}

int pml_gpusym_report_corrupt(struct ompi_communicator_t *comm, int peer, int tag)
{
    char name[GPUSYM_COMM_LABEL_MAX], who[32];
    gpusym_help(CORRUPT, ompi_comm_rank(comm), gpusym_comm_label(comm, name, sizeof name),
                format_peer(peer, who, sizeof who), tag);
    return MPI_ERR_OTHER;
}

/* text: takes our rank, communicator, the other rank, tag, and the pid of its process. */
static int report_process(const char *text, struct ompi_communicator_t *comm, int peer, int tag, int pid)
{
    char name[GPUSYM_COMM_LABEL_MAX], who[32];
    gpusym_help(text, ompi_comm_rank(comm), gpusym_comm_label(comm, name, sizeof name),
                format_peer(peer, who, sizeof who), tag, pid);
    return MPI_ERR_OTHER;
}

int pml_gpusym_report_dead(struct ompi_communicator_t *comm, int peer, int tag, int pid)
{
    if (gpusym_ft_tell(comm, peer)) { /* else the user has been told before */
        (void) report_process(DEAD, comm, peer, tag, pid);
    }
    return GPUSYM_ERR_PROC_FAILED;
}

int pml_gpusym_report_peer(struct ompi_communicator_t *comm, int peer, int tag, int pid)
{
    return report_process(PEER, comm, peer, tag, pid);
}

int pml_gpusym_report_unreachable(struct ompi_communicator_t *comm, int peer, int tag, int pid)
{
    return report_process(UNREACHABLE, comm, peer, tag, pid);
}
