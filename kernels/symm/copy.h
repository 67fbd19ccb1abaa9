/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Copies from one address to another, of runs of bytes or of rows: messages between two processes, pulled from or
 * pushed to mapped memory.  The kernel waits for nothing but signals, for a limited time.  Each block writes a
 * completion word of its own, w->done[block], when its part has been stored: a count of ended blocks would need memory
 * of the GPU, and one more round trip to it.
 */
#ifndef GPUSYM_KERNELS_SYMM_COPY_H
#define GPUSYM_KERNELS_SYMM_COPY_H

#include "kernels/prim/move.h"
#include "kernels/symm/box.h"
#include "kernels/symm/resident.h"

/* What the lines of a signal hold, beside its number. */
#define GS_SIGNAL 0x9d5b36f4c7a1e28dull

/* Stores the lines [first, end) of a signal: behind all that these threads have stored before their last barrier. (Not
 * inline, nor is the wait: the other copies are launched with less code.) */
GS_OUTLINE void gs_signal_store(gs_ctx_t part, const gpusym_work_t *w, char *lines, uint32_t signal, uint32_t first,
                                uint32_t end)
{
    GS_NO_UNROLL
    for (uint32_t i = first + part.thread; i < end; i += part.nthreads) {
        gs_fence_out(w);
        gs_ll_st(lines + 16 * i, GS_SIGNAL, signal);
    }
}

/* These threads wait for a signal: the data before it can then be read. False: it has not come in time. */
GS_OUTLINE bool gs_signal_await(gs_ctx_t part, const gpusym_work_t *w, const char *lines, uint32_t signal)
{
    const uint64_t since = gs_now_ns();
    bool there = true;
    GS_NO_UNROLL
    for (uint32_t i = part.thread; i < GPUSYM_SIGNAL_LINES && there; i += part.nthreads) {
        uint64_t holds = 0;
        while (there && (!gs_ll_ld(lines + 16 * i, signal, &holds) || GS_SIGNAL != holds)) {
            gs_pause();
            there = gs_now_ns() - since <= w->enter_ns;
        }
        if (0 == w->linger_ns) {
            gs_fence_system(); /* a resident kernel's loads are strong, and wait at the barrier */
        }
    }
    return gs_part_all(part, there);
}

/* The block's part of its run: a span.  Where both addresses are off a pack by as much, all packs but the first and the
 * last are whole. Returns the status. */
GS_FN uint32_t gs_copy_run(gs_ctx_t c, const gpusym_work_t *w)
{
    uint32_t i = 0;
    GS_NO_UNROLL
    while (c.block - w->run[i].first >= w->run[i].blocks) {
        i++;
    }
    const gpusym_run_t *run = &w->run[i];
    const char *src = (const char *) run->in;
    char *dst = (char *) run->out;
    const uint64_t skew = (uintptr_t) dst % 16 == (uintptr_t) src % 16 ? (0 - (uintptr_t) dst) % 16 : 0;
    const uint64_t head = skew < run->bytes ? skew : run->bytes, rest = run->bytes - head, step = 16ull * run->span;
    const uint32_t part = c.block - run->first;
    const uint64_t first = part * step, left = first < rest ? rest - first : 0;

    if (0 != (run->does & GPUSYM_COPY_WAITS) &&
        !gs_signal_await(c, w, src + GPUSYM_SIGNAL_OFF(run->bytes), run->signal)) {
        return GPUSYM_STATUS_TIMEOUT;
    }
    if (0 == part && 0 != head) {
        gs_copy(c, dst, src, head);
    }
    gs_copy(c, dst + head + first, src + head + first, left < step ? left : step);
    if (0 != (run->does & GPUSYM_COPY_SIGNALS)) {
        gs_block_sync(c);
        gs_signal_store(c, w, dst + GPUSYM_SIGNAL_OFF(run->bytes), run->signal,
                        GPUSYM_SIGNAL_LINES * part / run->blocks, GPUSYM_SIGNAL_LINES * (part + 1) / run->blocks);
    }
    return GPUSYM_STATUS_OK;
}

/* Copies `unit` bytes: 1, 2, 4, 8 or 16, to whose multiples both addresses belong. */
GS_FN void gs_copy_unit(char *dst, const char *src, uint32_t unit)
{
    if (16 == unit) {
        gs_st16(dst, gs_ld16(src));
    } else if (8 == unit) {
        *(uint64_t *) dst = *(const uint64_t *) src;
    } else if (4 == unit) {
        *(uint32_t *) dst = *(const uint32_t *) src;
    } else if (2 == unit) {
        *(uint16_t *) dst = *(const uint16_t *) src;
    } else {
        *dst = *src;
    }
}

/* Rows: in units of the largest power of two that suits all rows, dealt out to all threads of the launch. */
GS_FN void gs_copy_rows(gs_ctx_t c, const gpusym_work_t *w)
{
    const uint64_t low = (uintptr_t) w->in | (uintptr_t) w->out | w->bytes | w->rows.to_pitch | w->rows.from_pitch | 16;
    const uint32_t unit = (uint32_t) (low & (0 - low));
    const uint64_t columns = w->bytes / unit, stride = (uint64_t) c.nblocks * c.nthreads;
    const uint64_t rows = stride / columns, more = stride % columns, start = (uint64_t) c.block * c.nthreads + c.thread;
    uint64_t row = start / columns, column = start % columns;

    GS_NO_UNROLL
    while (row < w->rows.height) {
        gs_copy_unit((char *) w->out + row * w->rows.to_pitch + column * unit,
                     (const char *) w->in + row * w->rows.from_pitch + column * unit, unit);
        column += more; /* no division for each */
        row += rows + (column >= columns);
        column -= column >= columns ? columns : 0;
    }
}

/* Packs that a thread of a resident block has under way at once, and of long copies: a round trip between two GPUs
 * takes about as long as the block's loads of eight packs a thread. */
#define GS_COPY_PACKS 2u
#define GS_COPY_PACKS_LONG 8u

/* A commanded copy of packs, by the threads of part, which have a barrier behind it. */
GS_FN void gs_copy_command_packs(gs_ctx_t part, const char *in, char *out, uint32_t packs)
{
    GS_NO_UNROLL
    for (uint32_t i = part.thread; i < packs; i += GS_COPY_PACKS_LONG * part.nthreads) {
        gs_pack_t v[GS_COPY_PACKS_LONG] = {{{0, 0}}};
        GS_UNROLL
        for (uint32_t u = 0; u < GS_COPY_PACKS_LONG; u++) {
            if (i + u * part.nthreads < packs) {
                v[u] = gs_ld16_strong(in + 16 * (i + u * part.nthreads));
            }
        }
        GS_UNROLL
        for (uint32_t u = 0; u < GS_COPY_PACKS_LONG; u++) {
            if (i + u * part.nthreads < packs) {
                gs_st16(out + 16 * (i + u * part.nthreads), v[u]);
            }
        }
    }
}

/* The same of bytes. What is copied may have been written since the kernel began. */
GS_FN void gs_copy_command(gs_ctx_t part, const gs_message_t *m)
{
    const uint32_t in_align = gs_align(m->in), out_align = gs_align(m->out), packs = (uint32_t) ((m->bytes + 15) / 16);
    GS_NO_UNROLL
    for (uint32_t i = part.thread; i < packs; i += GS_COPY_PACKS * part.nthreads) {
        gs_pack_t v[GS_COPY_PACKS] = {{{0, 0}}};
        GS_UNROLL
        for (uint32_t u = 0; u < GS_COPY_PACKS; u++) {
            if (i + u * part.nthreads < packs) {
                v[u] = gs_ld_user_strong(m->in, in_align, m->bytes, i + u * part.nthreads);
            }
        }
        GS_UNROLL
        for (uint32_t u = 0; u < GS_COPY_PACKS; u++) {
            if (i + u * part.nthreads < packs) {
                gs_st_user_word(m->out, out_align, m->bytes, i + u * part.nthreads, v[u]);
            }
        }
    }
    gs_part_sync(part);
}

/* An exchange with the host: x, and what its command said. (An output that has been stored before another one's lines
 * were late is stored again, by whoever stores all: the same bytes. All arguments by value: the command would have to
 * stand in memory.) */
GS_OUTLINE void gs_copy_exchange(gs_ctx_t part, const gpusym_work_t *w, const char *first, gpusym_exchange_t *x,
                                 uint32_t says, uint32_t number)
{
    const uint32_t bytes = says & 0x3ffu, packs = (bytes + 15) / 16;
    const uint32_t nin = 1 + (says >> 10 & 7u), nout = 1 + (says >> 13 & 7u);
    const uint64_t since = gs_now_ns();
    bool there = true;
    GS_NO_UNROLL
    for (uint32_t i = part.thread; i < nin * packs; i += part.nthreads) {
        const uint32_t q = i / packs;
        const char *in = 0 == q ? first : (const char *) gs_reach((void *) (uintptr_t) gs_ld_strong(&x->in[q], 8));
        const gs_pack_t v = gs_ld_user_strong(in, gs_align(in), bytes, i % packs);
        gs_ll_st(&x->sent[2 * i], v.w[0], number);
        gs_ll_st(&x->sent[2 * i + 1], v.w[1], number);
    }
    for (uint32_t i = part.thread; i < nout * packs; i += part.nthreads) {
        char *out = (char *) gs_reach((void *) (uintptr_t) gs_ld_strong(&x->out[i / packs], 8));
        const gpusym_ll_line_t *line = &x->answer[2 * (i % packs)];
        gs_pack_t v = {{0, 0}};
        bool low = false, high = false;
        while (!(low && high) && there) {
            there = gs_now_ns() - since <= w->enter_ns; /* before the loads: each is looked at at least once */
            low = gs_ll_ld(line, number, &v.w[0]);
            high = gs_ll_ld(line + 1, number, &v.w[1]);
        }
        there = low && high;
        if (!there) {
            break;
        }
        gs_st_user_word(out, gs_align(out), bytes, i % packs, v);
    }
    there = gs_part_all(part, there);
    if (!there && 0 == part.thread) {
        gs_ll_st(&x->late, 1, number);
        gs_fence_system();
    }
}

/* The pack that a combination makes of one that it has found. */
GS_FN gs_pack_t gs_combine(uint32_t op, uint32_t type, gs_pack_t found, gs_pack_t given)
{
    if (op >= GPUSYM_COMBINE_REPLACE) {
        return given;
    }
    if (GPUSYM_OP_SUM == op && (GPUSYM_T_I64 == type || GPUSYM_T_U64 == type)) { /* counters: without the long code */
        const gs_pack_t sum = {{found.w[0] + given.w[0], found.w[1] + given.w[1]}};
        return sum;
    }
    const gs_acc_t acc = gs_acc_any(op, type, gs_acc_start(type, found), given);
    return gs_acc_end(type, &acc);
}

/* A combination of the elements at out, as x says. A pack is found, combined and stored by one thread. Up to a warp's
 * packs the given ones are loaded from the host before it is known whether they are there, at once with the rest: a
 * round trip across PCIe takes as long as one to another GPU. What all threads need is loaded once, a word by each:
 * loads of one address by several threads are a round trip each. */
GS_OUTLINE void gs_copy_combine(gs_ctx_t part, const gpusym_combine_t *x, char *out, uint32_t bytes)
{
    GS_SHARED uint64_t says[GPUSYM_COMBINE_WORDS];
    const uint32_t packs = (bytes + 15) / 16, align = gs_align(out);
    gs_pack_t first = {{0, 0}}, found = {{0, 0}};
    GS_NO_UNROLL
    for (uint32_t i = part.thread; i < GPUSYM_COMBINE_WORDS; i += part.nthreads) {
        says[i] = gs_ld_strong((const char *) x + 8 * i, 8);
    }
    if (part.thread < packs) {
        first = packs <= GS_WARP ? gs_ld16_strong(x->value + 16 * part.thread) : first;
        found = gs_ld_user_strong(out, align, bytes, part.thread);
    }
    gs_part_sync(part);
    const char *from = (const char *) gs_reach((const void *) (uintptr_t) says[0]);
    char *result = (char *) gs_reach((const void *) (uintptr_t) says[1]);
    const char *compared = (const char *) gs_reach((const void *) (uintptr_t) says[2]);
    const uint32_t op = (uint32_t) says[3], type = (uint32_t) (says[3] >> 32);
    const gs_pack_t compare = {{says[4], says[5]}};
    GS_NO_UNROLL
    for (uint32_t i = part.thread; i < packs; i += part.nthreads) {
        gs_pack_t given = first;
        if (NULL != from) {
            given = gs_ld_user_strong(from, gs_align(from), bytes, i);
        } else if (packs > GS_WARP || i != part.thread) {
            given = gs_ld16_strong(x->value + 16 * i);
        }
        found = i != part.thread ? gs_ld_user_strong(out, align, bytes, i) : found;
        bool stores = true;
        if (GPUSYM_COMBINE_COMPARE == op) {
            const gs_pack_t want = NULL != compared ? gs_ld_bytes_strong(compared, bytes) : compare;
            stores = found.w[0] == want.w[0] && found.w[1] == want.w[1];
        }
        if (stores) {
            gs_st_user_word(out, align, bytes, i, gs_combine(op, type, found, given));
        }
        if (NULL != result) {
            gs_st_user_word(result, gs_align(result), bytes, i, found);
        }
    }
    gs_part_sync(part);
}

/* Whether a command is what `of` says. */
GS_FN bool gs_copy_is(const gs_command_t *r, uint32_t of)
{
    return of == (r->skip & of);
}

/* What is done in place of a copy: a combination, a list or an exchange. */
GS_FN void gs_copy_special(gs_ctx_t part, const gpusym_work_t *w, const gs_command_t *r)
{
    const uint32_t bytes = (uint32_t) r->m.bytes;
    if (gs_copy_is(r, GPUSYM_COPY_COMBINES) && bytes > GPUSYM_COMBINE_MAX) {
        gs_box_list(part, (const gpusym_box_run_t *) (const void *) r->m.in, bytes - GPUSYM_LIST_COMMAND(0));
    } else if (gs_copy_is(r, GPUSYM_COPY_COMBINES)) {
        gs_copy_combine(part, (const gpusym_combine_t *) (const void *) r->m.in, r->m.out, bytes);
    } else {
        gs_copy_exchange(part, w, r->m.in, (gpusym_exchange_t *) (void *) r->m.out, bytes, r->seq);
    }
}

/* ---- packs ---- */

/* The first block: by all blocks of the cluster. */
GS_FN void gs_copy_by_cluster(gs_ctx_t c, const gs_command_t *r)
{
    gs_cluster_publish(c, r);
    gs_copy_command_packs(gs_cluster_threads(c), r->m.in, r->m.out, (uint32_t) r->m.bytes);
    gs_cluster_sync();
}

/* The others: they sleep at the barrier until they are to help, or, by a command of no packs, to leave. */
GS_FN void gs_copy_help(gs_ctx_t c)
{
    gs_command_t r = {0, 0, {NULL, NULL, 0}, 0, 0};
    for (gs_cluster_receive(c, &r); 0 != r.m.bytes; gs_cluster_receive(c, &r)) {
        gs_copy_command_packs(gs_cluster_threads(c), r.m.in, r.m.out, (uint32_t) r.m.bytes);
        gs_cluster_sync();
    }
}

/* ---- commands ---- */

/* A copy, of bytes or of packs, with its signals. Returns the status. */
GS_FN uint32_t gs_copy_plain(gs_ctx_t c, gs_ctx_t part, const gpusym_work_t *w, const gs_command_t *r, uint32_t signal)
{
    const bool packs = gs_copy_is(r, GPUSYM_COPY_PACKS);
    const uint64_t off = GPUSYM_SIGNAL_OFF(packs ? 16 * r->m.bytes : r->m.bytes);
    if (gs_copy_is(r, GPUSYM_COPY_WAITS) && !gs_signal_await(part, w, r->m.in + off, signal)) {
        return GPUSYM_STATUS_TIMEOUT;
    }
    if (!packs) {
        gs_copy_command(part, &r->m);
    } else if (gs_is_cluster(c) && r->m.bytes > GPUSYM_COPIER_ALONE) {
        gs_copy_by_cluster(c, r);
    } else {
        gs_copy_command_packs(part, r->m.in, r->m.out, (uint32_t) r->m.bytes);
        gs_part_sync(part); /* all is stored before thread 0 tells so */
    }
    if (gs_copy_is(r, GPUSYM_COPY_SIGNALS)) {
        gs_signal_store(part, w, r->m.out + off, signal, 0, GPUSYM_SIGNAL_LINES);
    }
    return GPUSYM_STATUS_OK;
}

/* A copy, or what is done in its place. Returns the status. */
GS_FN uint32_t gs_copy_commanded(gs_ctx_t c, gs_ctx_t part, const gpusym_work_t *w, const gs_command_t *r,
                                 uint32_t signal)
{
    uint32_t status = GPUSYM_STATUS_OK;
    if (gs_copy_is(r, GPUSYM_COPY_EXCHANGES)) {
        gs_copy_special(part, w, r);
    } else {
        status = gs_copy_plain(c, part, w, r, signal);
    }
    if (0 == part.thread && gs_copy_is(r, GPUSYM_COPY_FAR)) {
        gs_fence_system();
    }
    return status;
}

/* The number of a command's signal: across PCIe, at once with what comes next. */
GS_FN uint32_t gs_copy_signal(gs_ctx_t part, const gpusym_work_t *w, const gs_command_t *r)
{
    return 0 != (r->skip & (GPUSYM_COPY_SIGNALS | GPUSYM_COPY_WAITS)) && !gs_copy_is(r, GPUSYM_COPY_EXCHANGES) &&
                   part.thread < GS_WARP
               ? (uint32_t) gs_ld_strong(w->doorbell + 2, 4)
               : 0;
}

/* A launch that stays: does its own copy, of w->run[0], as if it had been commanded, and then the commands that follow
 * (resident.h). Copies have no epochs: what a command skips says more of the copy (GPUSYM_COPY_FAR and so on). */
GS_FN void gs_copy_resident(gs_ctx_t c, const gpusym_work_t *w)
{
    const gpusym_run_t *run = &w->run[0];
    gs_command_t r = {w->done_seq, 0, {(const char *) run->in, (char *) run->out, run->bytes}, run->does, 0};
    const gs_ctx_t block = {c.thread, c.nthreads, 0, 1};
    gs_ctx_t part = block;
    uint32_t status = gs_copy_commanded(c, part, w, &r, run->signal);
    while (gs_command_end(block, w, part, &r, status) && gs_command_next(block, w, &r, 1, &part)) {
        status = gs_copy_commanded(c, part, w, &r, gs_copy_signal(part, w, &r));
    }
    r.m.bytes = 0;
    if (gs_is_cluster(c)) {
        gs_cluster_publish(c, &r);
    }
}

GS_FN void gs_copy_launched(gs_ctx_t c, const gpusym_work_t *w)
{
    uint32_t status = GPUSYM_STATUS_OK;
    if (0 != w->rows.runs) {
        status = gs_copy_run(c, w);
    } else {
        gs_copy_rows(c, w);
    }
    gs_block_sync(c);
    if (0 == c.thread) {
        if (GPUSYM_STATUS_OK != status) {
            gs_done_at(w, w->done + GPUSYM_COPY_BLOCKS + c.block, w->done_seq, status);
        }
        gs_done_at(w, w->done + c.block, w->done_seq, GPUSYM_STATUS_OK);
    }
}

GS_FN void gs_copy_all(gs_ctx_t c, const gpusym_work_t *w)
{
    gs_ctx_t part;
    if (0 == w->linger_ns) {
        gs_copy_launched(c, w);
    } else if (gs_command_first(c, &part)) {
        if (0 == c.block) {
            gs_copy_resident(c, w);
        } else {
            gs_copy_help(c);
        }
    }
}

#endif
