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
    struct ompi_communicator_t *comm = run->engine->fallback->comm;
    const char *why;
    if (gpusym_ft_revoked(comm)) {
        return found(run, COLL_GPUSYM_FAILED_REVOKED, -1, NULL);
    }
    /* First: who has given up for a rank that has died did so after its death. */
    const int quitter = gpusym_agreement_aborted(&t->host.rc, number);
    const int dead = t->host.joined ? gpusym_agreement_dead(&t->host.rc) : coll_gpusym_team_dead(t);
    if (dead >= 0) {
        return found(run, COLL_GPUSYM_FAILED_DEAD, dead, NULL);
    }
    const int corrupt = gpusym_agreement_corrupt(&t->host.rc, &run->task.read);
    if (corrupt >= 0) {
        return found(run, COLL_GPUSYM_FAILED_CORRUPT, corrupt, NULL);
    }
    /* What this rank knows by itself says more than what others tell, but for an island that gave up. */
    int lost = coll_gpusym_team_is_part(t) ? coll_gpusym_hosts_lost(t, &why) : -1;
    if (lost < 0 || coll_gpusym_hosts_gave_up == why) {
        const char *told = NULL;
        int named = quitter >= 0 && NULL != t->hosts ? coll_gpusym_hosts_blamed(t, quitter, &told) : -1;
        if (named < 0) {
            named = gpusym_ft_dead(comm);
            told = "Open MPI reports that its process has failed";
        }
        lost = named >= 0 ? named : lost;
        why = named >= 0 ? told : why;
    }
    if (lost >= 0) {
        return found(run, COLL_GPUSYM_FAILED_LOST, lost, why);
    }
    return quitter >= 0 && found(run, COLL_GPUSYM_FAILED_ABORTED, quitter, NULL);
}

/* The lower rank first: both say the same. */
static void report_mismatch(const coll_gpusym_run_t *run, const char *label)
{
    const gpusym_agreement_read_t *read = &run->task.read;
    const int rank[] = {(int) coll_gpusym_team_rank(run->engine->team), rank_of(run, read->mismatch_rank)};
    const uint32_t coll[] = {run->args->coll, gpusym_agreement_what(coll_gpusym_run_agreement(run),
                                                                    (uint32_t) read->mismatch_rank, read->seq)};
    const size_t bytes[] = {(size_t) run->task.segments->bytes, (size_t) read->mismatch_bytes};
    const int low = rank[0] < rank[1] ? 0 : 1, high = 1 - low;
    coll_gpusym_help("mismatch", label, (unsigned long long) read->seq, rank[low], coll_gpusym_mpi_name(coll[low]),
                     bytes[low], rank[high], coll_gpusym_mpi_name(coll[high]), bytes[high],
                     coll[0] == coll[1] && bytes[0] == bytes[1] ? " (operation, datatype or root)" : "");
}

/* The host of a rank of the communicator. */
static const char *host_of(const coll_gpusym_team_t *t, int rank)
{
    return coll_gpusym_peer_host(NULL != t->all ? t->all[rank] : t->host.peers[rank]);
}

/* The communicator's rank whose process is known to have ended; -1: none. */
static int find_ended(const coll_gpusym_run_t *run)
{
    const coll_gpusym_failure_t *f = &run->failure;
    const coll_gpusym_team_t *t = run->engine->team;
    if (COLL_GPUSYM_FAILED_DEAD == f->kind) {
        return rank_of(run, f->rank);
    }
    if (COLL_GPUSYM_FAILED_LOST != f->kind || NULL == t->all) {
        return -1;
    }
    const bool near = coll_gpusym_peers_near(t->all[f->rank], t->all[coll_gpusym_team_rank(t)]);
    return near && !coll_gpusym_peer_lives(t->all[f->rank]) ? f->rank : -1;
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
    case COLL_GPUSYM_FAILED_REVOKED: /* the program knows */
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
        coll_gpusym_help("lost-rank", me, label, name, f->rank, host_of(t, f->rank), f->text);
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

static int class_of(const coll_gpusym_failure_t *f)
{
    switch (f->kind) {
    case COLL_GPUSYM_FAILED_REVOKED:
        return GPUSYM_ERR_REVOKED;
    case COLL_GPUSYM_FAILED_DEAD:
        return GPUSYM_ERR_PROC_FAILED;
    case COLL_GPUSYM_FAILED_LOST:
        return coll_gpusym_hosts_gave_up != f->text ? GPUSYM_ERR_PROC_FAILED : MPI_ERR_OTHER;
    case COLL_GPUSYM_FAILED_MEMORY:
        return MPI_ERR_NO_MEM;
    case COLL_GPUSYM_FAILED_MISMATCH:
    case COLL_GPUSYM_FAILED_OTHER_CALL:
        return MPI_ERR_ARG;
    case COLL_GPUSYM_FAILED_CORRUPT:
    case COLL_GPUSYM_FAILED_NET:
        return MPI_ERR_INTERN;
    default:
        return MPI_ERR_OTHER;
    }
}

/* Not for sure, if this rank does not know how long the message is. */
static bool may_be_segmented(const coll_gpusym_run_t *run)
{
    const uint64_t bytes = run->task.segments->bytes;
    return 0 != coll_gpusym_params.piece && (0 == bytes || bytes > coll_gpusym_params.piece);
}

/* Tells Open MPI of a rank that is lost; of all ranks of an island from which nothing comes. */
static void tell_lost(const coll_gpusym_run_t *run)
{
    const coll_gpusym_failure_t *f = &run->failure;
    const gpusym_islands_t *islands = &run->engine->team->islands;
    struct ompi_communicator_t *comm = run->engine->fallback->comm;
    if (COLL_GPUSYM_FAILED_LOST != f->kind || coll_gpusym_hosts_gave_up == f->text) {
        return;
    }
    (void) gpusym_ft_tell(comm, f->rank);
    for (int r = 0; coll_gpusym_hosts_silent == f->text && r < ompi_comm_size(comm); r++) {
        if (gpusym_islands_find(islands, (uint32_t) r) == gpusym_islands_find(islands, (uint32_t) f->rank)) {
            (void) gpusym_ft_tell(comm, r);
        }
    }
}

void coll_gpusym_fail(coll_gpusym_run_t *run, uint64_t number)
{
    coll_gpusym_team_t *t = run->engine->team;
    const coll_gpusym_failure_t found_here = run->failure;
    if (found_here.ask_peers && !coll_gpusym_find_lost(run, number)) {
        run->failure = found_here;
    }
    const int ended = find_ended(run);
    if (ended < 0 || gpusym_ft_tell(run->engine->fallback->comm, ended)) { /* else the user has been told before */
        report(run);
    }
    tell_lost(run);
    if (COLL_GPUSYM_FAILED_REVOKED != run->failure.kind) { /* else Open MPI tells all ranks */
        const bool lost = COLL_GPUSYM_FAILED_LOST == run->failure.kind;
        coll_gpusym_hosts_abort(t, lost ? run->failure.rank : ended, lost ? run->failure.text : NULL);
        coll_gpusym_team_abort(t, number);
    }
    if (COLL_GPUSYM_NONBLOCKING == run->mode && !t->broken && may_be_segmented(run)) {
        /* Peers may have begun segments: what they have sent must not meet another communicator of this one's id, nor
         * the one that reserves the id while a new one is made. */
        OBJ_RETAIN(run->engine->fallback->comm);
    }
    t->broken = true;
    t->open = false;
    t->error = COLL_GPUSYM_FAILED_REPORTED == run->failure.kind && MPI_SUCCESS != run->error ? run->error
                                                                                             : class_of(&run->failure);
    t->runs_on = t->runs_on || COLL_GPUSYM_FAILED_GPU == run->failure.kind;
    run->error = t->error;
}
