/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Memory of every kind for the test programs.  On CUDA it goes to the driver by itself, as a user's program
 * would, and shares no code with device/cuda; on the simulator it uses the very instance of
 * libmca_common_gpusym that the component uses.
 */
#ifndef TEST_MPI_MEM_H
#define TEST_MPI_MEM_H

#include <stdbool.h>
#include <stddef.h>

/* MEM_KIND(ID, name) */
#define MEM_KINDS                                                                                          \
    MEM_KIND(HOST, host)                                                                                   \
    MEM_KIND(DEVICE, device)                                                                               \
    MEM_KIND(MANAGED, managed)                                                                             \
    MEM_KIND(REGISTERED, registered)                                                                       \
    MEM_KIND(ASYNC, async)   /* of cudaMallocAsync: belongs to no context, has no IPC handle */            \
    MEM_KIND(VMM, vmm)       /* of cuMemCreate, mapped in one piece, that can be shared by a descriptor */ \
    MEM_KIND(PIECES, pieces) /* the same, mapped in many: a buffer is no allocation */

enum mem_kind {
#define MEM_KIND(id, name) MEM_##id,
    MEM_KINDS
#undef MEM_KIND
        MEM_COUNT
};

/*
 * Opens a device: "cuda", "sim" or "host" (none: only host memory).  Once, after MPI_Init.  cuda: makes the primary
 * context of GPU local_rank (modulo their number) current in the calling thread, as cudaSetDevice does.
 * Returns 0; -1 with a line on stderr if the device is not there.
 */
int mem_init(const char *device, int local_rank);
/* Lets go of it, before MPI_Finalize and after the last mem_free. */
void mem_fini(void);

/* The device's name, as mem_init was given it; NULL: none is open. */
const char *mem_device(void);
/* cuda: the GPU's number in this process; else 0. */
int mem_gpu(void);

/* Whether the device has this kind. */
bool mem_have(int kind);
/* "host", "device", ...; NULL for what is no kind. */
const char *mem_name(int kind);

/* size bytes of one kind, undefined, aligned to 256; NULL with a line on stderr if there are none left. Owned by the
 * caller, who gives it back with the same kind. Any thread; its current context stays as it is, none included. */
void *mem_alloc(int kind, size_t size);
void mem_free(int kind, void *p);

/* Whether the CPU may touch what p points to. */
bool mem_plain(const void *p);

/* Copy between host memory and memory of any kind; done when they return.  They wait for nothing but the
 * copy itself.  Any thread.  An error ends the process with a line on stderr. */
void mem_write(void *dst, const void *src, size_t size);
void mem_read(void *dst, const void *src, size_t size);

/* Waits until the GPU has done all that this process has given it, kernels of gpusym's too. */
void mem_synchronize(void);

/* A copy between memory of a GPU and memory of any kind but pageable, behind other work of some milliseconds on the
 * legacy stream: the call does not wait for it. Where the device has no such stream, it is done. `busy`: room for that
 * work, MEM_BUSY bytes of the GPU. */
#define MEM_BUSY (64u << 20)
void mem_write_later(void *dst, const void *src, size_t size, void *busy);

/* Lets this process have so many bytes of address space beside what it has. False: it cannot be told, or a sanitizer's
 * own memory would be limited, too. */
bool mem_limit(size_t more);

/* Whether the calling thread, that of mem_init, still has the current context it had then. */
bool mem_context_kept(void);

#endif
