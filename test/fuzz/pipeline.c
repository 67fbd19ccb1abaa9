/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz: both halves of staging pipelines (p2p/pipeline.h), whose flow the other process writes. The CPU does the copies
 * of a GPU, which may end later, or fail; each stays within what its half may reach.
 */
#include "mca/common/gpusym/p2p/pipeline.h"
#include "test/fuzz/fuzz.h"

static int checked_start(gpusym_queue_t *queue, const gpusym_copy_rows_t *run, uint32_t tag);
#define gpusym_queue_start checked_start
#include "mca/common/gpusym/p2p/pipeline.c"
#undef gpusym_queue_start

#include <unistd.h>

enum { SLOT = 3, STEPS = 64, KEY = 77, MESSAGE_MAX = 2 << 20 };

static gpusym_peer_t *self;
static char *gpu_memory; /* what the sender's key names */
static const gpusym_pipeline_t *polled;
static const fuzz_input_t *input; /* says what becomes of copies */

/* ---- the device, its copies, and registrations ---- */

static gpusym_gpu_t *any_gpu(void)
{
    return (gpusym_gpu_t *) (uintptr_t) &self; /* compared, never read */
}

static int host_register(gpusym_gpu_t *gpu, void *host, size_t size, void **dev)
{
    (void) gpu;
    (void) size;
    *dev = host;
    return GPUSYM_SUCCESS;
}

static int host_unregister(gpusym_gpu_t *gpu, void *host)
{
    (void) gpu;
    (void) host;
    return GPUSYM_SUCCESS;
}

static int mem_free(gpusym_gpu_t *gpu, void *p)
{
    (void) gpu;
    MUST(p == gpu_memory);
    return GPUSYM_SUCCESS;
}

static const char *error(void)
{
    return "";
}

static const gpusym_device_t dev = {.name = "fuzz",
                                    .host_register = host_register,
                                    .host_unregister = host_unregister,
                                    .mem_free = mem_free,
                                    .error = error};

int gpusym_mem_alloc(const gpusym_device_t *of, gpusym_gpu_t *gpu, size_t size, void **p)
{
    (void) of;
    (void) gpu;
    MUST(GPUSYM_PIPELINE_GPU_BYTES == size);
    *p = gpu_memory;
    return GPUSYM_SUCCESS;
}

int gpusym_reg_get(const gpusym_device_t *of, gpusym_gpu_t *gpu, const void *p, uint64_t bytes, uint32_t *key,
                   uint64_t *off)
{
    (void) of;
    (void) gpu;
    MUST(p == gpu_memory && GPUSYM_PIPELINE_GPU_BYTES == bytes);
    *key = KEY;
    *off = 0;
    return GPUSYM_SUCCESS;
}

void gpusym_reg_put(uint32_t key)
{
    MUST(KEY == key);
}

/* The right key is of the right size; others may be of memory that is too small. */
int gpusym_reg_map(const gpusym_device_t *of, gpusym_gpu_t *gpu, gpusym_peer_t *peer, uint32_t key, void **base,
                   uint64_t *size)
{
    (void) of;
    (void) gpu;
    MUST(peer == self);
    *base = gpu_memory;
    *size = KEY == key ? GPUSYM_PIPELINE_GPU_BYTES : key % 2 ? 4096 : GPUSYM_PIPELINE_GPU_BYTES - 1;
    return key % 3 || KEY == key ? GPUSYM_SUCCESS : GPUSYM_ERR_UNREACHABLE;
}

int gpusym_copy_start_rows(const gpusym_device_t *of, gpusym_gpu_t *gpu, const gpusym_copy_rows_t *rows,
                           gpusym_copy_t *copy)
{
    (void) of;
    (void) gpu;
    *copy = (gpusym_copy_t){.polls = 0 == input->left ? 0 : input->at[0] % 3};
    if (0 != input->left && 0xff == input->at[0]) {
        return GPUSYM_ERR;
    }
    memcpy(rows->dst, rows->src, rows->width);
    return GPUSYM_SUCCESS;
}

int gpusym_copy_poll(gpusym_copy_t *copy)
{
    if (0 != copy->polls) {
        copy->polls--;
        return 0;
    }
    return 0 != input->left && 0xfe == input->at[0] ? GPUSYM_ERR : 1;
}

static bool within(const char *p, uint64_t bytes, const char *base, uint64_t size)
{
    return NULL != base && p >= base && bytes <= size && (uint64_t) (p - base) <= size - bytes;
}

static int checked_start(gpusym_queue_t *queue, const gpusym_copy_rows_t *run, uint32_t tag)
{
    const bool sends = NULL == polled->desc;
    const char *const own = sends ? run->src : run->dst, *const other = sends ? run->dst : run->src;
    const gpusym_share_t *const segment = polled->segment;

    MUST(gpusym_queue_under_way(queue) < GPUSYM_QUEUE_MAX && 1 == run->height && 0 != run->width);
    MUST(within(own, run->width, polled->at, polled->bytes));
    MUST(NULL != polled->mem ? within(other, run->width, gpu_memory, GPUSYM_PIPELINE_GPU_BYTES)
                             : within(other, run->width, segment->base + GPUSYM_SHARE_FIRST,
                                      GPUSYM_PIPELINE_BYTES - GPUSYM_SHARE_FIRST));
    return gpusym_queue_start(queue, run, tag);
}

/* ---- what the other process writes ---- */

static void write_flow(flow_t *flow, fuzz_input_t *in)
{
    const unsigned what = (unsigned) fuzz_number(in, 1);

    switch (what % 8) {
    case 0: /* anywhere */
    {
        const size_t at = fuzz_number(in, 1) % (sizeof *flow / 8) * 8;
        if (at < offsetof(flow_t, segment) || at >= offsetof(flow_t, check)) { /* no other process's descriptors */
            fuzz_take(in, (char *) flow + at, 8);
        }
        break;
    }
    case 1:
        flow->filled = fuzz_number(in, what & 8 ? 8 : 1);
        break;
    case 2:
        flow->taken = fuzz_number(in, what & 8 ? 8 : 1);
        break;
    case 3:
        flow->failed = (int32_t) fuzz_number(in, 4);
        break;
    case 4:
        flow->key = what & 8 ? (uint32_t) fuzz_number(in, 4) : KEY;
        break;
    case 5:
        flow->answer = (uint32_t) fuzz_number(in, what & 8 ? 4 : 1);
        break;
    default: /* what a sender could have written, but for its values */
        flow->slots = (uint32_t) (what & 8 ? fuzz_number(in, 4) : fuzz_number(in, 1) % (GPUSYM_PIPELINE_SLOTS + 2));
        flow->piece = fuzz_number(in, what & 16 ? 8 : 3);
        for (unsigned i = 0; i < GPUSYM_PIPELINE_SLOTS; i++) {
            flow->off[i] = fuzz_number(in, what & 32 ? 8 : 3);
        }
        flow->in_gpu = what >> 6 & 1;
        flow->segment = shared.host.own->id;
        flow->segment.bytes -= what >> 7 & 1;
        flow->check = check_of(flow);
        flow->filled = fuzz_number(in, 1) % (GPUSYM_PIPELINE_SLOTS + 2);
    }
}

/* ---- a message ---- */

static void open_self(void)
{
    gpusym_pages_id_t id;

    if (NULL == self) {
        MUST(GPUSYM_SUCCESS == gpusym_pages_open(&id) && GPUSYM_SUCCESS == gpusym_pages_peer(&id, &self));
        MUST(GPUSYM_SUCCESS == gpusym_send_descs_open(SLOT) && GPUSYM_SUCCESS == gpusym_send_descs_attach(self, SLOT));
        gpu_memory = calloc(1, GPUSYM_PIPELINE_GPU_BYTES);
        MUST(NULL != gpu_memory && gpusym_pipelines_ready());
    }
}

static bool poll_half(gpusym_pipeline_t *half, fuzz_input_t *in)
{
    int status;

    polled = half;
    input = in;
    const bool ended = gpusym_pipeline_poll(half, &status);
    MUST(ended ? status <= 0 : GPUSYM_SUCCESS == status);
    MUST(half->copies.ended <= half->copies.started && half->ring.slots <= GPUSYM_PIPELINE_SLOTS);
    return ended;
}

static void end_half(gpusym_pipeline_t *half, bool ended, fuzz_input_t *in)
{
    if (!ended) {
        gpusym_pipeline_fail(half, GPUSYM_ERR);
        for (unsigned i = 0; i < 4 * GPUSYM_QUEUE_MAX && !ended; i++) {
            ended = poll_half(half, in);
        }
        MUST(ended);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size}, nothing = {data, 0};
    const unsigned how = (unsigned) fuzz_number(&in, 1);
    const uint64_t bytes = 1 + fuzz_number(&in, 3) % MESSAGE_MAX, wanted = 1 + fuzz_number(&in, 3) % MESSAGE_MAX;
    char *const from = calloc(1, bytes), *const to = malloc(wanted);
    gpusym_pipeline_t out, into;
    gpusym_send_desc_t desc;
    uint8_t rts[GPUSYM_RTS];
    uint32_t index;
    bool sent = false, received = false;

    open_self();
    const bool asks = how & 1;
    gpusym_offer_t o = {
        .to = SLOT, .bytes = bytes, .kind = asks ? GPUSYM_SEND_DESC_PINNED : GPUSYM_SEND_DESC_PIPELINE, .gpu = -1};
    MUST(NULL != from && NULL != to && GPUSYM_SUCCESS == gpusym_send_desc_offer(&o, NULL, &index, rts));
    MUST(GPUSYM_SUCCESS == gpusym_send_desc_claim(self, rts, &desc));
    gpusym_pipeline_receive(&into, &dev, how & 2 ? any_gpu() : NULL, to, wanted, &desc, how & 4);
    MUST(!asks || GPUSYM_SUCCESS == gpusym_send_desc_take_pipeline(index));
    gpusym_pipeline_send(&out, &dev, how & 8 ? any_gpu() : NULL, from, bytes, index, how & 16);
    const bool sends = how & 32;
    for (unsigned step = 0; step < STEPS && in.left > 0; step++) {
        const unsigned what = (unsigned) fuzz_number(&in, 1) % 4;
        if (0 == what) {
            write_flow(gpusym_send_desc_room(index), &in);
        } else if (what % 2 && sends) {
            sent = sent || poll_half(&out, &in);
        } else {
            received = received || poll_half(&into, &in);
        }
    }
    end_half(&into, received, &nothing);
    end_half(&out, sent, &nothing);
    gpusym_send_desc_free(index);
    MUST(0 == gpusym_send_descs_live());
    gpusym_pipelines_close(&dev);
    MUST(gpusym_pipelines_ready());
    free(from);
    free(to);
    return 0;
}
