/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls that fail: see fail.h.
 */
#include "mca/coll/gpusym/call/fail.h"

#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/help.h"
#include "mca/coll/gpusym/conf/params.h"
#include "mca/coll/gpusym/team/team.h"
#include "mca/coll/gpusym/team/watch.h"

/* The communicator's rank of a member of the team; negative: none. */
static int rank_of(const coll_gpusym_run_t *run, int member)
{
    return member < 0 ? member : (int) coll_gpusym_team_member(run->engine->team, (uint32_t) member);
}

static bool found(coll_gpusym_run_t *run, coll_gpusym_failed_t kind, int rank, const char *text)
{
    (void) coll_gpusym_run_failed(run, kind, rank, text);
    return true;
}

bool coll_gpusym_find_lost(coll_gpusym_run_t *run, uint64_t number)
{
    coll_gpusym_team_t *t = run->engine->team;
    const char *why;
    const int dead = t->host.joined ? gpusym_rollcall_dead(&t->host.rc) : coll_gpusym_team_dead(t);
    if (dead >= 0) {
        return found(run, COLL_GPUSYM_FAILED_DEAD, dead, NULL);
    }
    const int corrupt = gpusym_rollcall_corrupt(&t->host.rc, &run->task.read);
    if (corrupt >= 0) {
        return found(run, COLL_GPUSYM_FAILED_CORRUPT, corrupt, NULL);
    }
    /* What this rank knows by itself says more. */
    int lost = coll_gpusym_team_is_part(t) ? coll_gpusym_hosts_lost(t, &why) : -1;
    if (lost >= 0) {
        return found(run, COLL_GPUSYM_FAILED_LOST, lost, why);
    }
    const int quitter = gpusym_rollcall_aborted(&t->host.rc, number);
    lost = quitter >= 0 && NULL != t->hosts ? coll_gpusym_hosts_blamed(t, quitter) : -1;
    if (lost >= 0) {
        return found(run, COLL_GPUSYM_FAILED_LOST, lost, "another rank of this host has reported it");
    }
    return quitter >= 0 && found(run, COLL_GPUSYM_FAILED_ABORTED, quitter, NULL);
}

/* The lower rank first: both say the same. */
static void report_mismatch(const coll_gpusym_run_t *run, const char *label)
{
    const gpusym_rollcall_read_t *read = &run->task.read;
    const int rank[] = {(int) coll_gpusym_team_rank(run->engine->team), rank_of(run, read->mismatch_rank)};
    const uint32_t coll[] = {run->args->coll, gpusym_rollcall_what(coll_gpusym_run_rollcall(run),
                                                                   (uint32_t) read->mismatch_rank, read->seq)};
    const size_t bytes[] = {(size_t) run->task.segments->bytes, (size_t) read->mismatch_bytes};
    const int low = rank[0] < rank[1] ? 0 : 1, high = 1 - low;
    coll_gpusym_help("mismatch", label, (unsigned long long) read->seq, rank[low], coll_gpusym_mpi_name(coll[low]),
                     bytes[low], rank[high], coll_gpusym_mpi_name(coll[high]), bytes[high],
                     coll[0] == coll[1] && bytes[0] == bytes[1] ? " (operation, datatype or root)" : "");
}

static void report(const coll_gpusym_run_t *run)
{
    const coll_gpusym_failure_t *f = &run->failure;
    const coll_gpusym_team_t *t = run->engine->team;
    const int me = (int) coll_gpusym_team_rank(t);
    const char *name = coll_gpusym_mpi_name(run->args->coll);
    char buf[GPUSYM_COMM_LABEL_MAX];
    const char *label = gpusym_comm_label(run->engine->fallback->comm, buf, sizeof buf);
    switch (f->kind) {
    case COLL_GPUSYM_FAILED_REPORTED:
        break;
    case COLL_GPUSYM_FAILED_GPU:
        coll_gpusym_help("gpu-error", me, '\0' != t->host.gpu_text[0] ? t->host.gpu_text : "of the buffer", label, name,
                         f->text);
        break;
    case COLL_GPUSYM_FAILED_MEMORY:
        coll_gpusym_help("no-memory", me, label, name, f->bytes, f->text);
        break;
    case COLL_GPUSYM_FAILED_DEAD:
        coll_gpusym_help("dead-rank", me, label, opal_process_info.nodename, rank_of(run, f->rank),
                         coll_gpusym_peer_process(t->host.peers[f->rank]), name);
        break;
    case COLL_GPUSYM_FAILED_LOST:
        coll_gpusym_help("lost-rank", me, label, name, f->rank, coll_gpusym_peer_host(t->all[f->rank]), f->text);
        break;
    case COLL_GPUSYM_FAILED_ABORTED:
        coll_gpusym_help("aborted", me, label, name, rank_of(run, f->rank));
        break;
    case COLL_GPUSYM_FAILED_TIMEOUT:
        coll_gpusym_help("timeout", me, t->host.gpu_text, label, name, rank_of(run, f->rank),
                         coll_gpusym_params.timeout);
        break;
    case COLL_GPUSYM_FAILED_MISMATCH:
        report_mismatch(run, label);
        break;
    case COLL_GPUSYM_FAILED_OTHER_CALL:
        coll_gpusym_help("other-island", me, label, name, (size_t) run->task.segments->bytes, f->rank,
                         coll_gpusym_peer_host(t->all[f->rank]));
        break;
    case COLL_GPUSYM_FAILED_CORRUPT:
        coll_gpusym_help("corrupt", me, label, name, rank_of(run, f->rank));
        break;
    case COLL_GPUSYM_FAILED_NET:
        coll_gpusym_help("net-error", me, label, name);
        break;
    }
}

/* Not for sure, if this rank does not know how long the message is. */
static bool may_be_cut(const coll_gpusym_run_t *run)
{
    const uint64_t bytes = run->task.segments->bytes;
    return 0 != coll_gpusym_params.piece && (0 == bytes || bytes > coll_gpusym_params.piece);
}

void coll_gpusym_fail(coll_gpusym_run_t *run, uint64_t number)
{
    coll_gpusym_team_t *t = run->engine->team;
    const coll_gpusym_failure_t found_here = run->failure;
    if (found_here.ask_peers && !coll_gpusym_find_lost(run, number)) {
        run->failure = found_here;
    }
    report(run);
    coll_gpusym_hosts_abort(t, COLL_GPUSYM_FAILED_LOST == run->failure.kind   ? run->failure.rank
                               : COLL_GPUSYM_FAILED_DEAD == run->failure.kind ? rank_of(run, run->failure.rank)
                                                                              : -1);
    coll_gpusym_team_abort(t, number);
    if (COLL_GPUSYM_NONBLOCKING == run->mode && !t->broken && may_be_cut(run)) {
        /* Peers may have begun pieces: what they have sent must not meet another communicator of this one's id, nor the
         * one that reserves the id while a new one is made. */
        OBJ_RETAIN(run->engine->fallback->comm);
    }
    t->broken = true;
    t->open = false;
    run->error = MPI_ERR_OTHER;
}
