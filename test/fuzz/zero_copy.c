/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz: what ranks post of their buffers, and of what goes where, as kernels and leaders then use it. All memory has
 * one size, which nobody but the device knows.
 */
#include "mca/common/ompi/ompi_compat.h"

#include "kernels/kernels.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/exec/regions.h"
#include "mca/coll/gpusym/plan/lead.h"
#include "mca/coll/gpusym/team/join.h"
#include "mca/coll/gpusym/team/settings.h"
#include "mca/common/gpusym/gpusym.h"
#include "mca/common/gpusym/memory/reg.h"
#include "mca/common/gpusym/memory/staging_buffer.h"
#include "test/fuzz/fuzz.h"

enum { RANKS = 4 };

static char *const memory = (char *) ((uintptr_t) 1 << 40); /* which nobody touches */
static uint64_t there;                                      /* bytes of it */
static gpusym_entry_t entry[RANKS];
static gpusym_table_row_t table[RANKS][RANKS];
static gpusym_seg_t sent[RANKS], received[RANKS];
static uint64_t remote_off[RANKS];
static bool in_table;

static int reg_map(void **base, uint64_t *size)
{
    *base = memory;
    *size = there;
    return GPUSYM_SUCCESS;
}

#define gpusym_agreement_entry(rc, r, seq) ((const gpusym_entry_t *) &entry[r])
#define gpusym_entry_intact(e, seq) ((void) (e), true)
#define gpusym_reg_find(id, p, bytes, key, off) false
#define gpusym_reg_get(dev, gpu, p, bytes, key, off) GPUSYM_ERR_NOT_AVAILABLE
#define gpusym_reg_put(key) ((void) (key))
#define gpusym_reg_map(dev, gpu, peer, key, base, size) reg_map(base, size)
#define gpusym_table_make(rc) ((void) (rc), GPUSYM_ERR_NO_MEMORY)
#define gpusym_table_rows(rc, seq) NULL
#define gpusym_table_publish(rc, seq) ((void) (rc))
#define gpusym_table_find(rc, r, seq, row) (*(row) = table[r], GPUSYM_TABLE_THERE)
#define gpusym_staging_buffer_own(staging) ((void) (staging), GPUSYM_ERR_NOT_AVAILABLE)
#define gpusym_staging_buffer_get(bytes, off) ((void) (off), GPUSYM_ERR_NOT_AVAILABLE)
#define gpusym_staging_buffer_put(off) ((void) (off))
#define gpusym_staging_buffer_lose() ((void) 0)
#define gpusym_staging_buffer_of(peer, staging) (*(staging) = NULL, GPUSYM_SUCCESS)
#define gpusym_staging_buffer_room(staging, off) ((void) (staging), (off) < there ? there - (off) : 0)
#define gpusym_staging_buffer_register(staging, dev, gpu, base) (*(base) = memory, GPUSYM_SUCCESS)
#define coll_gpusym_setting(team, key, otherwise) ((void) (team), otherwise)
#define coll_gpusym_team_owns(team, mem) ((void) (team), (void) (mem), true)
#include "mca/coll/gpusym/exec/regions.c"
#include "mca/coll/gpusym/plan/lead.c"
#include "mca/coll/gpusym/plan/zero_copy.c"

coll_gpusym_params_t coll_gpusym_params;
gpusym_current_t gpusym_current;

/* ---- what this rank knows by itself ---- */

bool coll_gpusym_blocks_has(unsigned coll)
{
    return COLL_GPUSYM_P_NEIGHBORS == coll_gpusym_facts[coll].pattern;
}

void coll_gpusym_segments_maps(unsigned coll, bool *in, bool *out)
{
    *in = 0 != (coll_gpusym_facts[coll].maps & COLL_GPUSYM_MAPS_IN);
    *out = 0 != (coll_gpusym_facts[coll].maps & COLL_GPUSYM_MAPS_OUT);
}

bool coll_gpusym_segments_in_table(unsigned coll)
{
    return COLL_GPUSYM_MAPS_OUT == coll_gpusym_facts[coll].maps && in_table;
}

bool coll_gpusym_segments_alike(unsigned coll, const gpusym_agreement_read_t *read)
{
    (void) coll, (void) read;
    return false;
}

bool coll_gpusym_team_is_short(const coll_gpusym_team_t *t, uint64_t bytes)
{
    (void) t;
    (void) bytes;
    return false;
}

bool coll_gpusym_segments_zero_copy(unsigned coll, const gpusym_agreement_read_t *read)
{
    (void) coll, (void) read;
    return true;
}

bool coll_gpusym_segments_moves(unsigned coll)
{
    return !coll_gpusym_facts[coll].reduces;
}

void coll_gpusym_segments_rows(const coll_gpusym_segments_t *k, gpusym_table_row_t *to)
{
    (void) k, (void) to;
}

void coll_gpusym_segments_work(const coll_gpusym_segments_t *k, uint64_t bytes, const coll_gpusym_pair_sizes_t *sizes,
                               gpusym_work_t *w)
{
    (void) k, (void) sizes;
    w->bytes = bytes;
    memcpy(w->send, sent, sizeof sent);
    memcpy(w->recv, received, sizeof received);
    memcpy(w->remote_off, remote_off, sizeof remote_off);
}

/* ---- what must hold ---- */

static void check_place(const void *at, uint64_t off, uint64_t bytes)
{
    const uint64_t from = (uint64_t) ((uintptr_t) at - (uintptr_t) memory);

    if (NULL != at && 0 != bytes) {
        MUST(from <= there && off <= there - from && bytes <= there - from - off);
    }
}

/* What kernels load and store of each rank's buffers (gpusym_work_t). */
static void check_work(const gpusym_work_t *w, unsigned coll)
{
    const coll_gpusym_facts_t *f = &coll_gpusym_facts[coll];
    const bool whole = gpusym_collective_whole(coll);

    for (uint32_t r = 0; r < w->nranks; r++) {
        const uint64_t taken = w->recv[f->reduces ? w->rank : r].bytes;
        check_place(w->peer_in[r], whole ? 0 : w->remote_off[r], whole ? w->bytes : taken);
        if (!in_table || r != w->rank) { /* one's own is at hand */
            check_place(w->peer_out[r], whole ? 0 : w->remote_off[r], whole ? w->bytes : w->send[r].bytes);
        }
        for (uint32_t q = 0; COLL_GPUSYM_P_ALLGATHER == f->pattern && !in_table && q < w->nranks; q++) { /* rings */
            check_place(w->peer_out[r], w->recv[q].off, w->recv[q].bytes);
        }
    }
}

static void read_entries(fuzz_input_t *in)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        const unsigned how = (unsigned) fuzz_number(in, 1);
        entry[r] = (gpusym_entry_t){.in_key = how & 1 ? 1 + r : 0, .out_key = how & 2 ? 1 + r : 0};
        entry[r].in_off = fuzz_number(in, how & 4 ? 8 : 1);
        entry[r].out_off = fuzz_number(in, how & 8 ? 8 : 1);
        entry[r].flags = how & 16 ? GPUSYM_POST_STAGED_IN : 0;
        entry[r].flags |= how & 32 ? GPUSYM_POST_STAGED_OUT : 0;
    }
}

static void read_tables(fuzz_input_t *in)
{
    const unsigned bytes = fuzz_number(in, 1) % 8 ? 1 : 8;

    for (uint32_t r = 0; r < RANKS; r++) {
        sent[r] = (gpusym_seg_t){fuzz_number(in, 1), fuzz_number(in, 1)};
        received[r] = (gpusym_seg_t){fuzz_number(in, 1), fuzz_number(in, 1)};
        remote_off[r] = fuzz_number(in, 1);
        for (uint32_t q = 0; q < RANKS; q++) {
            table[r][q] = (gpusym_table_row_t){fuzz_number(in, bytes), fuzz_number(in, bytes), fuzz_number(in, bytes),
                                               fuzz_number(in, bytes)};
        }
    }
}

static void use_kernels(coll_gpusym_task_t *task, fuzz_input_t *in)
{
    const unsigned coll = task->segments->args->coll;
    coll_gpusym_reach_t reach;
    gpusym_work_t w;
    int corrupt;

    memset(&w, 0, sizeof w);
    w.rank = task->segments->team->host.rank;
    w.nranks = task->segments->team->host.nranks;
    coll_gpusym_segments_work(task->segments, task->read.max_bytes, NULL, &w);
    if (coll_gpusym_zero_copy_map(task, &w, NULL, true, &corrupt) &&
        coll_gpusym_zero_copy_place(task, &w, &reach, &corrupt)) {
        check_work(&w, coll);
        read_entries(in); /* of the next start of a persistent call, with the same plan */
        memset(w.peer_in, 0, sizeof w.peer_in);
        memset(w.peer_out, 0, sizeof w.peer_out);
        if (coll_gpusym_zero_copy_map(task, &w, &reach, true, &corrupt)) {
            check_work(&w, coll);
            return;
        }
    }
    MUST(corrupt >= 0 && corrupt < (int) w.nranks);
}

static void use_leader(coll_gpusym_task_t *task)
{
    coll_gpusym_led_buffers_t all;
    coll_gpusym_lead_plan_t p;
    int corrupt;

    memset(&all, 0, sizeof all);
    if (!coll_gpusym_zero_copy_map_led(task, &all, true, &corrupt) ||
        !coll_gpusym_lead_make(task, &all, &p, &corrupt)) {
        MUST(corrupt >= 0 && corrupt < (int) task->segments->team->host.nranks);
        return;
    }
    const gpusym_job_t *job = NULL != p.list ? (gpusym_job_t *) ((char *) p.list + p.jobs_off) : p.work.job;
    for (uint32_t i = 0; i < p.work.lead.njobs; i++) {
        for (uint32_t s = job[i].src_first; s < job[i].src_end; s++) {
            for (uint32_t d = job[i].dst_first; d < job[i].dst_end; d++) {
                const void *from = GPUSYM_JOB_SWAP == job[i].form ? all.out[s] : all.in[s];
                check_place(from, job[i].in_off + d * job[i].in_step, job[i].bytes);
                check_place(all.out[d], job[i].out_off + s * job[i].out_step, job[i].bytes);
            }
        }
    }
    coll_gpusym_lead_free(&p);
}

/* Memory that is registered for calls on streams. */
static void use_region(const coll_gpusym_team_t *team)
{
    coll_gpusym_region_offer_t offer[RANKS];
    coll_gpusym_region_t region;

    memset(&region, 0, sizeof region);
    for (uint32_t r = 0; r < RANKS; r++) {
        offer[r] =
            (coll_gpusym_region_offer_t){.off = entry[r].in_off, .bytes = entry[r].out_off, .key = entry[r].in_key};
    }
    if (0 == coll_gpusym_region_map(&region, team, offer)) {
        for (uint32_t r = 0; r < team->host.nranks; r++) {
            check_place(region.at[r], 0, offer[r].bytes);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const gpusym_device_t dev = {.name = "fuzz", .simulated = true};
    static coll_gpusym_plan_cache_t cache;
    fuzz_input_t in = {data, size};
    const unsigned how = (unsigned) fuzz_number(&in, 1);
    coll_gpusym_args_t args;
    coll_gpusym_segments_t k;
    coll_gpusym_team_t team;
    coll_gpusym_task_t task;

    memset(&args, 0, sizeof args);
    memset(&k, 0, sizeof k);
    memset(&team, 0, sizeof team);
    memset(&task, 0, sizeof task);
    memset(&cache, 0, sizeof cache);
    gpusym_current.dev = &dev;
    args.coll = (enum coll_gpusym_coll)(fuzz_number(&in, 1) % COLL_GPUSYM_NATIVES);
    there = fuzz_number(&in, 1 + how % 2);
    team.host.nranks = 2 + how / 2 % 3;
    team.host.rank = how / 8 % team.host.nranks;
    team.host.nleaders = 1;
    for (uint32_t r = 0; r < RANKS; r++) {
        team.host.leader[r] = (uint16_t) team.host.rank;
    }
    args.root = (int) (how / 32 % team.host.nranks);
    k.args = &args;
    k.team = &team;
    k.type = GPUSYM_T_U8;
    k.op = GPUSYM_OP_BOR;
    task.segments = &k;
    task.cache = &cache;
    task.read.max_bytes = fuzz_number(&in, 1 + how % 2);
    task.read.all = fuzz_number(&in, 1) % 2 ? GPUSYM_POST_IN_PLACE : 0;
    in_table = fuzz_number(&in, 1) % 2 || coll_gpusym_blocks_has(args.coll);
    read_entries(&in);
    read_tables(&in);
    if (how < 96) {
        use_kernels(&task, &in);
    } else if (how < 192) {
        use_leader(&task);
    } else {
        use_region(&team);
    }
    return 0;
}
