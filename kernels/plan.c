/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Cutting: what each family makes of a message, and of its room in the slot.
 */
#include "kernels/plan.h"

static uint64_t round_up(uint64_t a, uint64_t unit)
{
    return (a + unit - 1) / unit * unit;
}

static uint32_t min_u32(uint32_t a, uint64_t b)
{
    return a < b ? a : (uint32_t) b;
}

static uint64_t share_of(uint64_t packs, uint64_t n)
{
    return (packs + n - 1) / n;
}

static uint64_t packs_of(uint64_t bytes)
{
    return (bytes + GPUSYM_PACK - 1) / GPUSYM_PACK;
}

/*
 * Cuts spans into chunks, as few and as even as there is room for.  A pack of a chunk takes `rows` bytes of staging in
 * a block, for each of its `parities` (if there is but one chunk: for one); chunks are whole multiples of unit packs,
 * and at most chunk_bytes long (0: as long as there is room for).  Returns how many chunks there are; the room is known
 * to do for one unit a block.
 */
static uint64_t cut_spans(gpusym_work_t *w, uint64_t rows, unsigned parities, bool single, uint32_t unit,
                          uint32_t chunk_bytes)
{
    const uint64_t packs_of_room = w->stage_room / rows / w->nblocks, limit = UINT32_MAX / GPUSYM_PACK / unit * unit;
    const uint64_t requested = 0 == chunk_bytes ? limit : round_up(packs_of(chunk_bytes), unit);
    const uint64_t whole = requested < limit ? requested : limit;
    uint64_t most = packs_of_room / parities / unit * unit;
    if (single && w->span <= packs_of_room && w->span <= whole) {
        w->chunk = (uint32_t) w->span;
        return 1;
    }
    most = most < whole ? most : whole;
    const uint64_t chunks = (w->span + most - 1) / most, even = (w->span + chunks - 1) / chunks;
    const uint64_t lines = round_up(even, 8ull * unit); /* of 128 bytes, a unit */
    w->chunk = (uint32_t) (lines <= most && even > 64ull * unit ? lines : round_up(even, unit));
    return (w->span + w->chunk - 1) / w->chunk;
}

/* Who owns slices: not the only source, which has enough to send, nor the only destination, which has enough to get; of
 * two ranks the destination, which then gets nothing back. */
static void plan_owners(gpusym_work_t *w)
{
    w->skip = w->nranks;
    if (w->nranks > 1 && 1 == w->src_end - w->src_first) {
        w->skip = w->src_first;
    } else if (w->nranks > 1 && 1 == w->dst_end - w->dst_first) {
        w->skip = 2 == w->nranks ? 1 - w->dst_first : w->dst_first;
    }
    w->owners = w->nranks - (w->skip < w->nranks);
}

static void plan_slice(gpusym_work_t *w)
{
    const uint32_t even = (uint32_t) share_of(w->chunk, w->owners);
    w->slice = GPUSYM_SLICE(even, w->owners, w->chunk);
}

/* Two-shot: every block has a span of the message, in slices for the owners. `in` and `out`, or only `in`. */
static uint64_t plan_two_shot(gpusym_work_t *w, uint32_t chunk_bytes, unsigned buffers)
{
    plan_owners(w);
    /* An owner has a buffer for a slice of each source: up to twice the chunk, where there are fewer owners than
     * sources. */
    const uint64_t row = GPUSYM_PACK * (w->src_end - w->src_first > w->owners ? 2u : 1u);
    const uint64_t blocks = w->stage_room / (2ull * buffers * row * w->owners);
    w->nblocks = w->nblocks > blocks ? (uint32_t) blocks : w->nblocks;
    w->span = GPUSYM_SPAN(share_of(packs_of(w->bytes), w->nblocks), (uint64_t) w->owners);
    const uint64_t chunks = cut_spans(w, row * buffers, 2, 1 == buffers, w->owners, chunk_bytes);
    w->stage_bytes = (uint32_t) (row * w->chunk);
    plan_slice(w);
    return chunks + 1; /* staged: no barrier after the last phase, which only copies out */
}

/* Zero copy without any staging: one barrier. */
static uint64_t plan_straight(gpusym_work_t *w, uint32_t unit)
{
    w->span = GPUSYM_SPAN(share_of(packs_of(w->bytes), w->nblocks), (uint64_t) unit);
    w->chunk = (uint32_t) (w->span < GPUSYM_CHUNK_MAX / unit * unit ? w->span : GPUSYM_CHUNK_MAX / unit * unit);
    w->stage_bytes = 0;
    return 1;
}

void gpusym_run_plan(gpusym_run_t *run, uint32_t first, uint32_t blocks)
{
    const uint64_t even = share_of(packs_of(run->bytes), blocks);
    run->span = (uint32_t) GPUSYM_SPAN(even, 1u);
    run->first = (uint8_t) first;
    run->blocks = (uint8_t) blocks;
}

/* Pieces of a job. */
static uint64_t count_pieces(const gpusym_job_t *job)
{
    const uint64_t ns = (uint64_t) job->src_end - job->src_first, nd = (uint64_t) job->dst_end - job->dst_first;
    switch (job->form) {
    case GPUSYM_JOB_MOVE:
    case GPUSYM_JOB_SWAP:
        return ns * nd;
    case GPUSYM_JOB_SPREAD:
        return ns;
    case GPUSYM_JOB_REDUCE_EACH:
        return nd;
    default:
        return 1;
    }
}

uint64_t gpusym_jobs_plan(gpusym_job_t *job, uint32_t n)
{
    uint64_t packs = 0;
    for (uint32_t i = 0; i < n; i++) {
        job[i].first = packs;
        packs += count_pieces(&job[i]) * packs_of(job[i].bytes);
    }
    return packs;
}

/* Exchange: every block has a span of every segment, and a buffer for each rank. */
static uint64_t plan_exchange(gpusym_work_t *w, uint32_t chunk_bytes)
{
    const uint64_t row = (uint64_t) GPUSYM_PACK * w->nranks, blocks = w->stage_room / (2 * row);
    w->nblocks = w->nblocks > blocks ? (uint32_t) blocks : w->nblocks;
    w->span = GPUSYM_SPAN(share_of(packs_of(w->bytes), w->nblocks), 1u);
    const uint64_t chunks = cut_spans(w, row, 2, true, 1, chunk_bytes);
    w->stage_bytes = GPUSYM_PACK * w->chunk;
    return chunks;
}

/* More than any segment has: so there are several chunks, of the same length for all. */
#define SIZED_BYTES (1ull << 50)

/* The larger of `lines` and what a segment has, if that goes in lines. */
static uint64_t count_lines(const gpusym_work_t *w, const gpusym_seg_t *seg, uint64_t lines)
{
    const uint64_t packs = seg->bytes <= GPUSYM_SIZED_LINES(w) ? packs_of(seg->bytes) : 0;
    return packs > lines ? packs : lines;
}

unsigned gpusym_kernel_sized_family(const gpusym_work_t *w)
{
    return w->bytes <= GPUSYM_SIZED_LINES(w) ? GPUSYM_F_XLL : GPUSYM_F_XST;
}

uint64_t gpusym_kernel_plan_sized(gpusym_work_t *w, uint32_t chunk_bytes)
{
    const uint64_t bytes = w->bytes;
    if (GPUSYM_F_XLL == gpusym_kernel_sized_family(w)) {
        w->early = GPUSYM_STREAM_SIZED_BEGINS;
        w->nblocks = 1;
        w->chunk = 1;
        return 0 == bytes ? 1 : gpusym_kernel_plan(GPUSYM_F_XLL, w, 0);
    }
    w->early = GPUSYM_STREAM_SIZED_WAITS;
    w->bytes = SIZED_BYTES;
    (void) plan_exchange(w, chunk_bytes);
    w->bytes = bytes;
    w->lines = 0;
    for (uint32_t p = 0; p < w->nranks; p++) {
        w->lines = p != w->rank ? count_lines(w, &w->send[p], count_lines(w, &w->recv[p], w->lines)) : w->lines;
    }
    return share_of(GPUSYM_SPAN(share_of(packs_of(bytes), w->nblocks), 1u), w->chunk);
}

/* The FIFOs of a protocol: their area in the slot; what a buffer is a multiple of, in bytes, and the packs that this
 * holds. */
typedef struct {
    uint64_t off, room;
    uint32_t bytes, packs;
} fifo_t;

static fifo_t fifo_of(unsigned family, const gpusym_work_t *w)
{
    switch (gpusym_family_protocol(family)) {
    case GPUSYM_PROTOCOL_LL:
        return (fifo_t){w->ll_off, w->ll128_off - w->ll_off, 128, 4};
    case GPUSYM_PROTOCOL_LL128:
        return (fifo_t){w->ll128_off, w->ll128_room, GPUSYM_LL128_BYTES, GPUSYM_LL128_PACKS};
    default:
        return (fifo_t){w->stage_off, w->stage_room, 128, 8};
    }
}

/* Streams that come in at a rank, at most. */
static uint32_t fifo_links(unsigned schedule)
{
    return schedule >= GS_TREE_ALLREDUCE ? GS_LINKS : 1;
}

uint32_t gpusym_channels_max(unsigned family, unsigned schedule, const gpusym_work_t *w)
{
    const fifo_t fifo = fifo_of(family, w);
    const uint64_t room = fifo.room / (fifo_links(schedule) * GS_STEPS * fifo.bytes);
    return min_u32(w->flag_rows / 2 < GPUSYM_CHANNELS_MAX ? w->flag_rows / 2 : GPUSYM_CHANNELS_MAX, room);
}

/* Channels: every block has a span, in loops of one chunk, or (ring all-reduce) one per rank. As few loops as the FIFOs
 * allow, or as chunk_bytes sets, and even ones. */
static uint64_t plan_channels(unsigned family, gpusym_work_t *w, uint32_t chunk_bytes)
{
    const uint32_t chunks = GS_RING_ALLREDUCE == w->schedule ? w->nranks : 1;
    const bool lines = GPUSYM_PROTOCOL_SIMPLE != gpusym_family_protocol(family);
    const fifo_t fifo = fifo_of(family, w);
    w->fifo_off = fifo.off;
    w->fifo_links = fifo_links(w->schedule);
    w->nblocks = min_u32(w->nblocks, gpusym_channels_max(family, w->schedule, w));
    w->span = GPUSYM_SPAN(share_of(packs_of(w->bytes), w->nblocks), (uint64_t) chunks);

    uint64_t most = fifo.room / (w->nblocks * w->fifo_links * GS_STEPS) / fifo.bytes * fifo.packs;
    if (0 != chunk_bytes && packs_of(chunk_bytes) < most) {
        most = packs_of(chunk_bytes);
    }
    /* A loop counts in 32 bits. */
    most = most < GPUSYM_CHUNK_MAX / GPUSYM_TEAM_MAX ? most : GPUSYM_CHUNK_MAX / GPUSYM_TEAM_MAX;
    /* Simple copies whole rounds of its threads, where it can: a round that is not full takes as long (one warp only
     * posts). */
    const uint64_t round = w->nthreads > 2 * 32 ? (w->nthreads - 32) * GPUSYM_MOVE_PACKS : 1;
    most = !lines && most > round ? most / round * round : most;
    const uint64_t part = share_of(w->span, chunks), loops = share_of(part, most);
    const uint64_t even = share_of(part, loops), rounds = round_up(even, lines || loops < 2 ? 8 : round);
    w->chunk = (uint32_t) (rounds <= most ? rounds : even);
    /* Buffers no longer than needed: they stay in the GPU's cache. */
    w->fifo_step = fifo.bytes * share_of(w->chunk, fifo.packs);
    w->stage_bytes = 0;
    return share_of(w->span, w->chunk * chunks) * gs_schedule_sends(w->schedule, w->nranks);
}

/* Bytes that a chunk may have: a buffer holds those of all other ranks, and what goes to an only destination. */
static uint64_t copies_room(const gpusym_work_t *w)
{
    return w->stage_room / (GPUSYM_COPIES_BUFFERS * w->nranks) / 128 * 128;
}

bool gpusym_copies_fit(unsigned family, const gpusym_work_t *w, bool whole, uint64_t bytes)
{
    const uint64_t slice = whole && w->nranks > 2 ? share_of(bytes, w->nranks - 1) : bytes;
    return w->flag_rows >= 3 && (!gpusym_family_reduces(family) || slice / GPUSYM_COPIES_MAX + 256 < copies_room(w));
}

/* Copy engines: slices (segments: the longest) in chunks. Segments that are not reduced go as they are. */
static uint64_t plan_copies(unsigned family, gpusym_work_t *w, uint32_t chunk_bytes)
{
    const uint64_t packs = packs_of(w->bytes);
    const bool reduces = gpusym_family_reduces(family);
    uint64_t most = GPUSYM_CHUNK_MAX;
    plan_owners(w);
    w->span = w->copies.whole ? GPUSYM_SPAN(share_of(packs, w->owners), 1u) : packs;
    if (reduces) {
        most = copies_room(w) / GPUSYM_PACK < most ? copies_room(w) / GPUSYM_PACK : most;
    } else if (!w->copies.whole) {
        chunk_bytes = 0;
    }
    const uint64_t least = round_up(share_of(w->span, GPUSYM_COPIES_MAX), 8);
    const uint64_t requested = 0 == chunk_bytes ? most : round_up(packs_of(chunk_bytes), 8);
    if (requested < least) {
        most = least;
    } else if (requested < most) {
        most = requested;
    }
    const uint64_t chunks = share_of(w->span, most), even = round_up(share_of(w->span, chunks), 8);
    w->chunk = (uint32_t) (even < most ? even : most);
    w->stage_bytes = reduces ? GPUSYM_PACK * w->chunk : 0;
    return share_of(w->span, w->chunk);
}

/* Groups of a unit, in all streams and both parities, that an LL128 area has room for: each with lines from every peer,
 * scattered and results. */
static uint64_t ll128_groups(const gpusym_work_t *w)
{
    return w->ll128_room / (2ull * GPUSYM_LL128_BYTES * (w->nranks > 1 ? w->nranks - 1 : 1));
}

bool gpusym_ll128_fits(const gpusym_work_t *w)
{
    return ll128_groups(w) >= 2;
}

/* Two-shot by LL128 lines: every slice in units, for streams. All in one round where there is room; else with two
 * parities, and as even as can be. */
static uint64_t plan_ll128(gpusym_work_t *w, uint32_t chunk_bytes)
{
    const uint64_t room = ll128_groups(w), most = room / 2; /* streams */
    w->nblocks = min_u32(w->nblocks, most);
    const uint64_t warps = most / w->nblocks;
    w->nthreads = GPUSYM_LL128_STREAMS(w->nthreads) > warps ? 32 * (uint32_t) warps : w->nthreads;
    w->span = GPUSYM_SPAN(share_of(packs_of(w->bytes), w->nranks), 1u);

    const uint64_t streams = (uint64_t) w->nblocks * GPUSYM_LL128_STREAMS(w->nthreads);
    const uint64_t groups = share_of(w->span, GPUSYM_LL128_PACKS), once = share_of(groups, streams);
    const uint64_t requested =
        0 == chunk_bytes ? GPUSYM_LL128_UNIT : share_of(packs_of(chunk_bytes), GPUSYM_LL128_PACKS);
    uint64_t unit = once;
    if (once > requested || once * streams > room) {
        unit = requested < room / (2 * streams) ? requested : room / (2 * streams);
        unit = share_of(groups, streams * share_of(groups, streams * unit));
    }
    w->chunk = GPUSYM_LL128_PACKS * (uint32_t) unit;
    w->stage_bytes = GPUSYM_LL128_BYTES * (uint32_t) unit;
    return share_of(groups, streams * unit);
}

/* LL: epochs of equal length, as few as the LL areas allow. */
static uint64_t plan_lines(gpusym_work_t *w)
{
    const uint64_t packs = packs_of(w->bytes), most = gpusym_ll_payload(w->ll_bytes) / GPUSYM_PACK;
    const uint64_t epochs = (packs + most - 1) / most;
    w->chunk = (uint32_t) ((packs + epochs - 1) / epochs);
    w->span = 0;
    w->stage_bytes = 0;
    return (packs + w->chunk - 1) / w->chunk;
}

uint64_t gpusym_kernel_plan(unsigned family, gpusym_work_t *w, uint32_t chunk_bytes)
{
    switch (gpusym_family_plan(family)) {
    case GPUSYM_PLAN_TWO_SHOT:
        return plan_two_shot(w, chunk_bytes, 2);
    case GPUSYM_PLAN_SCATTER:
        return plan_two_shot(w, chunk_bytes, 1);
    case GPUSYM_PLAN_SLICES:
        plan_owners(w);
        (void) plan_straight(w, w->owners);
        plan_slice(w);
        return 1;
    case GPUSYM_PLAN_SEGMENTS:
        return plan_straight(w, 1);
    case GPUSYM_PLAN_LL128:
        return plan_ll128(w, chunk_bytes);
    case GPUSYM_PLAN_EXCHANGE:
        return plan_exchange(w, chunk_bytes);
    case GPUSYM_PLAN_CHANNELS:
        return plan_channels(family, w, chunk_bytes);
    case GPUSYM_PLAN_COPIES:
        return plan_copies(family, w, chunk_bytes);
    default:
        return plan_lines(w);
    }
}
