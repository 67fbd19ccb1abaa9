/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The copier: a resident kernel, which after a small copy waits on the GPU for the next one, so that this one costs no
 * launch (kernels/symm/resident.h).  One for each GPU that the process has told to have one.  It waits for commands of
 * the host only, and for a limited time.  It has one block or, where the GPU has clusters, several, of which one waits
 * for commands, and the others for that one to need them.
 */
#ifndef GPUSYM_COMMON_EXEC_COPIER_H
#define GPUSYM_COMMON_EXEC_COPIER_H

#include "mca/common/gpusym/exec/lane.h"

typedef struct gpusym_copier gpusym_copier_t;

/*
 * Sets for how long the copier of gpu waits for the next copy, in nanoseconds; 0, as it is at first: there is none.
 * judge: it stays away while it is not worth it (tuning/resident.h); false: the user wants it.  None should be where
 * another process uses the same GPU, whose time it would take; under MPS it takes none.  Any thread.
 */
void gpusym_copier_linger(const gpusym_device_t *dev, gpusym_gpu_t *gpu, uint64_t linger_ns, bool judge);

/* A copy of 1 to gpusym_tuning_copy_resident_max() bytes into memory of the GPU, or with GPUSYM_COPY_FAR of another
 * GPU, or into pinned host memory, from memory that it reaches; or of whole, aligned packs up to
 * gpusym_tuning_copy_resident_packs_max(blocks) bytes; or what kernels/work.h has in place of a copy. */
typedef struct {
    void *dst;
    const void *src;
    uint32_t bytes;
    /* GPUSYM_COPY_FAR, GPUSYM_COPY_SIGNALS, GPUSYM_COPY_WAITS (kernels/work.h); or GPUSYM_COPY_EXCHANGES or
     * GPUSYM_COPY_COMBINES, with GPUSYM_COPY_FAR if an output is not memory of this GPU: src, bytes and dst are then as
     * these say. */
    uint32_t does;
    uint32_t signal; /* its number */
} gpusym_copier_run_t;

/* Starts a copy by gpu.  Poll it by gpusym_copier_poll.  GPUSYM_ERR_NOT_AVAILABLE: there is no copier, it is busy, or
 * not worth it; use a lane.  Other errors: the device's.  Any thread. */
int gpusym_copier_start(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_copier_run_t *run,
                        gpusym_copier_t **copier);
/* The same, but only if the kernel is there: nothing is launched, which may take as long as the program's own
 * kernels. */
int gpusym_copier_command(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_copier_run_t *run,
                          gpusym_copier_t **copier);
/* Starts n copies from box to box, 1 to GPUSYM_LIST_MAX, which end together; run->unit is set. far:
 * an output is not memory of this GPU. Errors as of gpusym_copier_start. */
int gpusym_copier_start_list(const gpusym_device_t *dev, gpusym_gpu_t *gpu, const gpusym_box_run_t *run, uint32_t n,
                             bool far, gpusym_copier_t **copier);
/* The blocks of the copier that the GPU is to have, 0: none; and whether that has something under way, which is a
 * hint. */
uint32_t gpusym_copier_blocks(const gpusym_device_t *dev, const gpusym_gpu_t *gpu);
bool gpusym_copier_is_busy(const gpusym_device_t *dev, const gpusym_gpu_t *gpu);
/* Returns 1 if the copy has ended, 0 if it is under way, or the device's error, which ends it too; GPUSYM_ERR_LATE:
 * nothing has been done, since the signal has not come, or the kernel had left and cannot be launched again.
 *
 * What is done once only (a combination) is safe with that: the kernel's word tells that it has done the command, or
 * that it had left before it, which is then launched again (kernels/symm/resident.h), and never both. After another
 * error nobody knows: do not repeat it. */
int gpusym_copier_poll(gpusym_copier_t *copier);

/* Of an exchange that is under way: the number that marks its lines; another one after a poll that has launched it
 * again, before which it has sent nothing. */
uint32_t gpusym_copier_number(const gpusym_copier_t *copier);

/* Commands all copiers to leave the GPU, those that are busy as soon as their copy has ended: before calls of the
 * driver that wait for kernels, for import say.  The next copy may bring one back.  Any thread. */
void gpusym_copiers_dismiss(void);
/* Dismisses and forgets all copiers, with what gpusym_copier_linger has set. No copy may be under way. */
void gpusym_copiers_close(void);

#endif
