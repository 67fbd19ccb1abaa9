/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/coll/gpusym/call/call.c alone, with ways that are scripts: a native one, a staged one that may
 * refuse, and one that refuses nothing. Three ranks are in this process, with a real call agreement; what the call asks
 * of its team, of sizes and of its user is here.
 *
 * A script is what the ways' functions say, one turn after the other, the same on all ranks; but rank r waits r times
 * longer. All scripts of up to TURNS turns are run, as they are and with a failure in place of each turn, on each rank.
 *
 *     test_call --count     runs one call that is done at once again and again, for a profiler
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/call/call.h"
#include "mca/coll/gpusym/call/decide.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/exec/traced.h"
#include "mca/coll/gpusym/exec/ways.h"
#include "mca/coll/gpusym/exec/whole.h"
#include "mca/coll/gpusym/team/watch.h"
#include "mca/coll/gpusym/team/join.h"
#include "mca/coll/gpusym/team/team.h"
#include "mca/coll/gpusym/team/tuner.h"

#define RANKS 3u
#define TURNS 6u
#define NOBODY RANKS
/* Polls after which a call is stuck. */
#define POLLS_MAX 1000u

enum { NATIVE, REFUSES, LAST, WAYS };
static const coll_gpusym_way_t way_of[WAYS];

typedef struct {
    uint8_t turn[TURNS];
    uint32_t length;
    uint32_t fails_at, fails_rank; /* NOBODY: none fails */
    uint32_t stop_polls;           /* how long the native way takes to stop */
    bool possible;                 /* the way that may refuse */
    bool awaits;                   /* the last way: no rank enters the fallback before all are ready */
    uint32_t late;                 /* there: the rank that is not ready; NOBODY: all are */
    uint32_t hasty;                /* there: the rank whose limit of time passes */
    bool late_at_limit;            /* the late one comes then; else while that is reported */
} script_t;
static script_t script;

/* A rank, and what it has seen in the call. */
typedef struct {
    ompi_communicator_t comm;
    coll_gpusym_fallback_t fallback;
    coll_gpusym_engine_t engine;
    coll_gpusym_team_t team;
    coll_gpusym_plan_cache_t cache;
    coll_gpusym_call_t call;
    uint32_t next, waited, stops; /* of the script; polls at its turn; of `stop` */
    int chosen;                   /* the way whose functions were called last, and that has not ended; -1: none */
    bool stopping;                /* `stop` has been called, and has not said yes */
    bool told;                    /* it is ready, and waits for the others */
    coll_gpusym_turn_t said;      /* by that way, last; of its `agree` */
    bool said_agreeing;
    uint32_t posts, reposts, leaves; /* run_post, run_repost, run_withdraw */
    uint32_t aborts, helps, counts, abandoned;
    bool over, bad;
    const char *what; /* is bad */
} rank_t;
static rank_t rank_of[RANKS], *now;

static void require(bool right, const char *what)
{
    if (!right && !now->bad) {
        now->bad = true;
        now->what = what;
    }
}

/* ---- the trace: no call has a record ---- */

coll_gpusym_record_t *coll_gpusym_trace_ring;

void coll_gpusym_traced_note_posted(coll_gpusym_run_t *run, bool posted)
{
    (void) run;
    (void) posted;
    fail();
}

void coll_gpusym_traced_note_awaits(coll_gpusym_run_t *run)
{
    (void) run;
    fail();
}

void coll_gpusym_traced_note_there(coll_gpusym_run_t *run, bool late)
{
    (void) run;
    (void) late;
    fail();
}

void coll_gpusym_traced_note_launched(coll_gpusym_run_t *run, uint32_t blocks)
{
    (void) run;
    (void) blocks;
    fail();
}

/* ---- the ways ---- */

static bool may_say(int way, bool agrees, coll_gpusym_turn_t turn)
{
    switch (turn) {
    case COLL_GPUSYM_TURN_WAITS:
    case COLL_GPUSYM_TURN_DONE:
        return true;
    case COLL_GPUSYM_TURN_EMPTY:
    case COLL_GPUSYM_TURN_AGAIN:
        return NATIVE == way && agrees;
    case COLL_GPUSYM_TURN_REFUSED:
        return LAST != way && agrees;
    case COLL_GPUSYM_TURN_HANDED:
        return NATIVE != way && !agrees;
    default:
        return false;
    }
}

/* Whether the script can be: each turn is one that its function may say. `script_wrong`: it was not. */
static bool script_wrong;

static coll_gpusym_turn_t next_turn(coll_gpusym_run_t *run, int way, bool agrees)
{
    if (now->next == script.fails_at && run->engine->team->host.rank == script.fails_rank) {
        now->next = script.length;
        return coll_gpusym_run_failed(run, COLL_GPUSYM_FAILED_GPU, -1, "as the script says");
    }
    if (now->next >= script.length) {
        return COLL_GPUSYM_TURN_DONE;
    }
    const coll_gpusym_turn_t turn = script.turn[now->next];
    if (!may_say(way, agrees, turn)) {
        script_wrong = true;
        return COLL_GPUSYM_TURN_DONE;
    }
    if (COLL_GPUSYM_TURN_WAITS == turn && now->waited++ < run->engine->team->host.rank) {
        return coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_VOTE);
    }
    now->waited = 0;
    now->next++;
    return COLL_GPUSYM_TURN_WAITS == turn ? coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE) : turn;
}

static coll_gpusym_turn_t say(coll_gpusym_run_t *run, int way, bool agrees)
{
    require(!now->stopping, "a function is called while the way is to stop");
    require(now->chosen == way || now->chosen < 0, "a function is called of a way that is not chosen");
    if (now->chosen < 0) { /* what another way has left there would be taken for its own */
        require(NULL == run->is.copies, "the union is not zero");
    } else {
        require(now->said <= COLL_GPUSYM_TURN_WAITS ||
                    (COLL_GPUSYM_TURN_DONE == now->said && now->said_agreeing && !agrees),
                "a function is called after the last word");
    }
    now->chosen = way;
    run->is.copies = (void *) now;
    now->said = next_turn(run, way, agrees);
    now->said_agreeing = agrees;
    return now->said;
}

static void end(coll_gpusym_run_t *run, int way)
{
    require(!now->stopping, "a way is ended before it has stopped");
    require(now->chosen == way || now->chosen < 0, "a way is ended that is not chosen");
    require(&run->task == &now->call.run.task, "another run");
    require(NATIVE != way || now->chosen < 0 || now->stops > 0 ||
                (COLL_GPUSYM_TURN_REFUSED != now->said && MPI_SUCCESS == run->error),
            "what runs has not been stopped");
    now->chosen = -1;
    now->stops = 0;
}

static void offer(coll_gpusym_run_t *run, gpusym_post_t *post)
{
    (void) run;
    post->kind = GPUSYM_KIND_NATIVE;
    post->bytes = 64;
}
static coll_gpusym_turn_t native_agree(coll_gpusym_run_t *run)
{
    return run->reason >= 0 ? COLL_GPUSYM_TURN_REFUSED : say(run, NATIVE, true);
}
static coll_gpusym_turn_t native_poll(coll_gpusym_run_t *run)
{
    return say(run, NATIVE, false);
}
static bool native_stop(coll_gpusym_run_t *run, bool recalled, bool due)
{
    (void) recalled;
    (void) due;
    require(run == &now->call.run && now->chosen <= NATIVE, "a way is stopped that is not chosen");
    now->stopping = now->stops++ < script.stop_polls;
    return !now->stopping;
}
static void native_abandon(coll_gpusym_run_t *run)
{
    (void) run;
    now->abandoned++;
    now->stopping = false;
}
static void native_end(coll_gpusym_run_t *run)
{
    end(run, NATIVE);
}
static bool refuses_possible(const coll_gpusym_run_t *run)
{
    (void) run;
    return script.possible;
}
static coll_gpusym_turn_t refuses_agree(coll_gpusym_run_t *run)
{
    return say(run, REFUSES, true);
}
static coll_gpusym_turn_t refuses_poll(coll_gpusym_run_t *run)
{
    return say(run, REFUSES, false);
}
static void refuses_end(coll_gpusym_run_t *run)
{
    end(run, REFUSES);
}
static coll_gpusym_turn_t last_poll(coll_gpusym_run_t *run)
{
    if (script.awaits) {
        return script.late == run->engine->team->host.rank ? coll_gpusym_run_waits(run, COLL_GPUSYM_WAIT_NONE)
                                                           : coll_gpusym_whole_await(run, &now->told);
    }
    return now->next >= script.length && script.fails_at != now->next ? COLL_GPUSYM_TURN_HANDED : say(run, LAST, false);
}
static void last_end(coll_gpusym_run_t *run)
{
    end(run, LAST);
}
static void count(const coll_gpusym_run_t *run, coll_gpusym_counters_t *counters)
{
    (void) run;
    (void) counters;
    now->counts++;
}

static const coll_gpusym_way_t *const instead[] = {&way_of[REFUSES], &way_of[LAST], NULL};
static const coll_gpusym_way_t way_of[WAYS] = {
    {.instead = instead,
     .takes_host = true,
     .offer = offer,
     .agree = native_agree,
     .poll = native_poll,
     .stop = native_stop,
     .abandon = native_abandon,
     .end = native_end,
     .count = count},
    {.instead = &instead[1],
     .possible = refuses_possible,
     .agree = refuses_agree,
     .poll = refuses_poll,
     .end = refuses_end,
     .count = count},
    {.poll = last_poll, .end = last_end, .count = count},
};

const coll_gpusym_way_t *coll_gpusym_native_way(coll_gpusym_engine_t *e, const coll_gpusym_task_t *task)
{
    (void) e;
    (void) task;
    return &way_of[NATIVE];
}

/* ---- what a call asks of others ---- */

coll_gpusym_counters_t coll_gpusym_counters[COLL_GPUSYM_COLLS];
coll_gpusym_params_t coll_gpusym_params;

/* The rank that was late is ready, and all others find that, while this one gives up. */
static void come_late(void)
{
    rank_t *const self = now;
    script.late = NOBODY;
    for (unsigned i = 0; i < 2 * RANKS; i++) {
        now = &rank_of[i % RANKS];
        if (now != self) {
            (void) coll_gpusym_call_poll(&now->call);
        }
    }
    now = self;
}

void coll_gpusym_help(const char *topic, ...)
{
    (void) topic;
    now->helps++;
}
const char *coll_gpusym_mpi_name(unsigned coll)
{
    (void) coll;
    return "MPI_Allreduce";
}
/* Every poll is due, so long after the one before. */
static uint64_t check_gap_ns = 1;
bool coll_gpusym_on_stream_ended(coll_gpusym_on_stream_t *s)
{
    (void) s;
    return true;
}
bool coll_gpusym_health_due(coll_gpusym_health_t *h)
{
    h->checked_ns += check_gap_ns;
    return true;
}
void coll_gpusym_wait_publish(const coll_gpusym_health_t *h, const coll_gpusym_run_t *run, const char *way,
                              gpusym_status_state_t state, uint64_t seq, coll_gpusym_wait_for_t what)
{
    (void) h, (void) run, (void) way, (void) seq, (void) what;
    assert_true(state < GPUSYM_STATUS_STATES);
}
bool coll_gpusym_wait_note(coll_gpusym_wait_t *w, const coll_gpusym_team_t *t, unsigned coll, uint64_t seq,
                           coll_gpusym_wait_for_t what, uint64_t gap_ns)
{
    (void) w, (void) coll, (void) seq, (void) gap_ns;
    const bool passes = script.awaits && t->host.rank == script.hasty && COLL_GPUSYM_WAIT_STAGED == what;
    if (passes && script.late_at_limit && NOBODY != script.late) {
        come_late();
    }
    return passes;
}
void coll_gpusym_wait_report(const coll_gpusym_team_t *t, unsigned coll, uint64_t seq, coll_gpusym_wait_for_t what)
{
    (void) t, (void) coll, (void) seq, (void) what;
    now->helps++;
    come_late();
}
void coll_gpusym_segments_init(coll_gpusym_segments_t *k, const coll_gpusym_buffers_t *b)
{
    (void) b;
    k->reason = -1;
}
bool coll_gpusym_segments_moves(unsigned coll)
{
    (void) coll;
    return false;
}
coll_gpusym_sizes_t *coll_gpusym_sizes_create(const coll_gpusym_segments_t *k, uint64_t seq)
{
    (void) k, (void) seq;
    return NULL;
}
coll_gpusym_sizes_state_t coll_gpusym_sizes_poll(coll_gpusym_sizes_t *s, uint64_t *max_bytes, int *corrupt)
{
    (void) s, (void) max_bytes, (void) corrupt;
    return COLL_GPUSYM_SIZES_WAITING;
}
const coll_gpusym_pair_sizes_t *coll_gpusym_sizes_agreed(const coll_gpusym_sizes_t *s)
{
    (void) s;
    return NULL;
}
bool coll_gpusym_sizes_truncated(const coll_gpusym_sizes_t *s)
{
    (void) s;
    return false;
}
void coll_gpusym_sizes_free(coll_gpusym_sizes_t *s)
{
    (void) s;
}
int coll_gpusym_team_bootstrap(coll_gpusym_team_t *t)
{
    (void) t;
    return 1;
}
int coll_gpusym_team_join(coll_gpusym_team_t *t, const gpusym_mem_t *mem)
{
    (void) t, (void) mem;
    return 1;
}
/* No rank has settings here: test/mpi/settings.c. */
coll_gpusym_settings_state_t coll_gpusym_settings_compare(coll_gpusym_team_t *t, coll_gpusym_wish_t *newest,
                                                          uint16_t number)
{
    (void) t, (void) newest, (void) number;
    require(false, "settings are compared");
    return COLL_GPUSYM_SETTINGS_SAME;
}
bool coll_gpusym_settings_wanted(const coll_gpusym_team_t *t, coll_gpusym_wish_t *newest, uint16_t *number)
{
    (void) t, (void) newest, (void) number;
    require(false, "settings are wanted");
    return false;
}
bool coll_gpusym_team_find_gpu(const coll_gpusym_team_t *t, gpusym_mem_t *mem)
{
    (void) t, (void) mem;
    require(false, "a rank on the host takes part");
    return false;
}
int coll_gpusym_tuner_need(coll_gpusym_team_t *t, unsigned coll, unsigned op, unsigned type, uint64_t bytes)
{
    (void) t, (void) coll, (void) op, (void) type, (void) bytes;
    require(false, "a tuner is asked");
    return 1;
}
void coll_gpusym_residents_forget(coll_gpusym_residents_t *all)
{
    (void) all;
}
int coll_gpusym_team_dead(const coll_gpusym_team_t *t)
{
    (void) t;
    return -1;
}
void coll_gpusym_team_abort(coll_gpusym_team_t *t, uint64_t first)
{
    now->aborts++;
    gpusym_line_abort(t->host.rc.line[t->host.rank], first);
}
void coll_gpusym_hosts_abort(coll_gpusym_team_t *t, int lost, const char *why)
{
    (void) t, (void) lost, (void) why;
}
int coll_gpusym_hosts_blamed(const coll_gpusym_team_t *t, int member, const char **why)
{
    (void) t, (void) member, (void) why;
    return -1;
}
bool coll_gpusym_peers_near(const coll_gpusym_peer_t *a, const coll_gpusym_peer_t *b)
{
    (void) a, (void) b;
    return true;
}
bool coll_gpusym_peer_lives(coll_gpusym_peer_t *peer)
{
    (void) peer;
    return true;
}
const char coll_gpusym_hosts_gave_up[] = "gave up";
const char coll_gpusym_hosts_silent[] = "silent";

int coll_gpusym_hosts_lost(coll_gpusym_team_t *t, const char **why)
{
    (void) t, (void) why;
    return -1;
}
int coll_gpusym_peer_process(const coll_gpusym_peer_t *p)
{
    (void) p;
    return 0;
}
const char *coll_gpusym_peer_host(const coll_gpusym_peer_t *p)
{
    (void) p;
    return "";
}
bool coll_gpusym_run_post(coll_gpusym_run_t *run, gpusym_post_t *post)
{
    now->posts++;
    return gpusym_agreement_post(coll_gpusym_run_agreement(run), post, &run->task.read);
}
void coll_gpusym_run_repost(coll_gpusym_run_t *run)
{
    (void) run;
    now->reposts++;
}
void coll_gpusym_run_withdraw(coll_gpusym_run_t *run)
{
    (void) run;
    require(0 == now->leaves++, "a call is left twice");
}
void coll_gpusym_whole_init(coll_gpusym_run_t *run, coll_gpusym_engine_t *e, coll_gpusym_buffers_t *b, int reason)
{
    *run = (coll_gpusym_run_t){.engine = e, .args = b->args, .buffers = b, .reason = reason};
}

/* ---- three ranks ---- */

static uint64_t line_off[RANKS];
static gpusym_line_t *line[RANKS];
static gpusym_peer_t *peer[RANKS];

/* Lines as they are made: all zero. */
static void make_team(void)
{
    gpusym_pages_id_t id;
    for (uint32_t r = 0; r < RANKS && NULL == line[r]; r++) {
        assert_int_equal(gpusym_pages_open(&id), GPUSYM_SUCCESS);
        assert_int_equal(gpusym_pages_alloc(&line_off[r]), GPUSYM_SUCCESS);
        assert_int_equal(gpusym_pages_peer(&id, &peer[r]), GPUSYM_SUCCESS);
        line[r] = gpusym_peer_line(peer[r], line_off[r]);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        rank_t *k = &rank_of[r];
        memset(line[r], 0, sizeof *line[r]);
        memset(k, 0, sizeof *k);
        k->comm.c_my_rank = (int) r;
        k->fallback.comm = &k->comm;
        k->engine.fallback = &k->fallback;
        k->engine.team = &k->team;
        k->engine.cache = &k->cache;
        k->team.fallback = &k->fallback;
        k->team.reason = -1;
        k->team.boot.step = COLL_GPUSYM_STEP_DONE;
        k->team.host.nranks = RANKS;
        k->team.host.rank = r;
        k->team.host.rc = (gpusym_agreement_t){.nranks = RANKS, .rank = r, .line = line, .peer = peer};
    }
}

static void begin(rank_t *k)
{
    static const coll_gpusym_args_t args = {.coll = COLL_GPUSYM_ALLREDUCE};
    const coll_gpusym_buffers_t buffers = {.comm = &k->comm,
                                           .args = &args,
                                           .send.mem = {.kind = GPUSYM_MEM_DEVICE},
                                           .recv.mem = {.kind = GPUSYM_MEM_DEVICE}};
    now = k;
    k->next = k->waited = k->stops = k->posts = k->reposts = k->leaves = k->aborts = k->helps = k->counts = 0;
    k->chosen = -1;
    k->over = k->stopping = k->told = false;
    coll_gpusym_call_init(&k->call, &k->engine, &buffers, COLL_GPUSYM_BLOCKING);
}

/* Polls the ranks in turn until all are over. False: they are stuck. */
static bool run_call(void)
{
    uint32_t over = 0, polls = 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        begin(&rank_of[r]);
    }
    for (; over < RANKS && polls < POLLS_MAX && !script_wrong; polls++) {
        now = &rank_of[polls % RANKS];
        if (!now->over && coll_gpusym_call_poll(&now->call)) {
            now->over = true;
            over++;
            coll_gpusym_call_count(&now->call);
        }
    }
    return over == RANKS;
}

static void describe(char *text, size_t size)
{
    static const char *const name[] = {"WAITS", "DONE", "EMPTY", "REFUSED", "AGAIN", "HANDED", "FAILED"};
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < script.length && used < size; i++) {
        used += (size_t) snprintf(text + used, size - used, "%s ", name[script.turn[i]]);
    }
    if (used < size) {
        snprintf(text + used, size - used, "(fails at %u on rank %u, %u polls to stop, staged by %s)", script.fails_at,
                 script.fails_rank, script.stop_polls, script.possible ? "the first way" : "the last");
    }
}

static void check_rank(rank_t *k)
{
    const bool failed = MPI_SUCCESS != k->call.run.error;
    now = k;
    require(k->chosen < 0 || COLL_GPUSYM_CALL_FALLBACK == k->call.state, "a way has not ended");
    require(1 == k->leaves, "what was offered is not taken back");
    require(failed == (1 == k->aborts) && failed == (1 == k->helps), "the peers, or the user, are not told once");
    require(failed == k->team.broken, "a communicator is broken without a failure");
    require(!failed || COLL_GPUSYM_CALL_ENDED == k->call.state, "a call that failed has not ended");
    require(k->posts == k->reposts + 1 || failed, "a call is not posted once");
    require(1 == k->counts, "a call is not counted once");
    if (NOBODY == script.fails_rank) {
        require(!failed, "a call failed");
        require(k->call.state == rank_of[0].call.state && k->call.way == rank_of[0].call.way,
                "ranks go different ways");
    }
}

/* Whatever comes behind a failed call is refused, and posts nothing. */
static void check_next(rank_t *k)
{
    const bool broken = k->team.broken;
    if (!broken) {
        return;
    }
    begin(k);
    require(coll_gpusym_call_poll(&k->call) && COLL_GPUSYM_CALL_ENDED == k->call.state &&
                MPI_SUCCESS != k->call.run.error && 0 == k->posts && 0 == k->aborts,
            "a call behind one that failed is not refused");
}

/* Runs the script. False: its turns are not those of its functions. */
static bool run_script(void)
{
    char text[200];
    script_wrong = false;
    make_team();
    const bool ended = run_call();
    if (!script_wrong) {
        describe(text, sizeof text);
        if (!ended) {
            fail_msg("stuck: %s", text);
        }
        for (uint32_t r = 0; r < RANKS; r++) {
            check_rank(&rank_of[r]);
        }
        if (script.fails_rank != NOBODY && script.fails_at <= script.length &&
            MPI_SUCCESS == rank_of[script.fails_rank].call.run.error) {
            rank_of[script.fails_rank].bad = script.fails_at < script.length;
            rank_of[script.fails_rank].what = "the failure was not noticed";
        }
        for (uint32_t r = 0; r < RANKS; r++) {
            check_next(&rank_of[r]);
            if (rank_of[r].bad) { /* of this script: check_next() adds to it */
                fail_msg("rank %u: %s: %s", r, rank_of[r].what, text);
            }
        }
    }
    return !script_wrong;
}

/* The script, and all that go on from it. Returns how many there are. */
static unsigned run_from(uint32_t length)
{
    unsigned n = 0;
    script.length = length;
    script.fails_at = UINT32_MAX;
    script.fails_rank = NOBODY;
    if (!run_script() || rank_of[0].next < length) { /* a shorter one did the same */
        return 0;
    }
    n++;
    for (uint32_t r = 0; r < RANKS; r++) {
        for (uint32_t at = 0; at <= length; at++) {
            script.fails_at = at;
            script.fails_rank = r;
            run_script();
        }
    }
    for (uint8_t turn = 0; length < TURNS && turn < COLL_GPUSYM_TURN_FAILED; turn++) {
        script.turn[length] = turn;
        n += run_from(length + 1);
    }
    return n;
}

static void all_scripts(void **state)
{
    (void) state;
    unsigned n = 0;
    for (uint32_t stop_polls = 0; stop_polls < 3; stop_polls += 2) {
        for (int possible = 0; possible < 2; possible++) {
            script = (script_t){.stop_polls = stop_polls, .possible = possible};
            n += run_from(0);
        }
    }
    print_message("%u scripts\n", n);
    assert_true(n > 2500);
}

/* What does not stop is abandoned after 5 s, once, and then the call ends. */
static void what_does_not_stop(void **state)
{
    (void) state;
    script = (script_t){.turn = {COLL_GPUSYM_TURN_DONE}, .length = 1, .fails_at = 1, .stop_polls = UINT32_MAX};
    check_gap_ns = 1000000000u;
    for (script.fails_rank = 0; script.fails_rank < RANKS; script.fails_rank++) {
        run_script();
        for (uint32_t r = 0; r < RANKS; r++) {
            const bool failed = MPI_SUCCESS != rank_of[r].call.run.error;
            assert_true(failed || r != script.fails_rank);
            assert_int_equal(rank_of[r].abandoned, failed);
        }
    }
    check_gap_ns = 1;
}

/* A rank gives up, and the last one becomes ready at that moment: all of them go on into the fallback, or none. */
static void ranks_enter_together(void **state)
{
    (void) state;
    for (uint32_t pair = 0; pair < RANKS * RANKS; pair++) {
        for (unsigned at_limit = 0; pair / RANKS != pair % RANKS && at_limit < 2; at_limit++) {
            script = (script_t){.turn = {COLL_GPUSYM_TURN_REFUSED},
                                .length = 1,
                                .fails_at = UINT32_MAX,
                                .fails_rank = NOBODY,
                                .awaits = true,
                                .late = pair / RANKS,
                                .hasty = pair % RANKS,
                                .late_at_limit = 0 != at_limit};
            make_team();
            assert_true(run_call() && !script_wrong && NOBODY == script.late);
            for (uint32_t r = 0; r < RANKS; r++) {
                const rank_t *k = &rank_of[r];
                assert_false(k->bad);
                assert_int_equal(k->call.state, at_limit ? COLL_GPUSYM_CALL_FALLBACK : COLL_GPUSYM_CALL_ENDED);
                assert_int_equal(MPI_SUCCESS == k->call.run.error, at_limit);
            }
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_scripts), cmocka_unit_test(what_does_not_stop),
                                       cmocka_unit_test(ranks_enter_together)};
    if (argc > 1 && 0 == strcmp(argv[1], "--count")) {
        script = (script_t){.fails_at = UINT32_MAX, .fails_rank = NOBODY};
        make_team();
        for (unsigned i = 0; i < 1000; i++) {
            if (!run_call()) {
                return 1;
            }
        }
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
