/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The processes of jobs: see ranks.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "info/ranks.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mca/common/gpusym/shm/process.h"

enum { ENVIRONMENT_MAX = 1 << 20, GENERATIONS_MAX = 64 };

static char wrong[256];

__attribute__((format(printf, 1, 2))) static const char *refuse(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(wrong, sizeof(wrong), format, ap);
    va_end(ap);
    return wrong;
}

static void *there(void *p)
{
    if (NULL == p) {
        fputs("gpusym_info: no host memory\n", stderr);
        exit(1);
    }
    return p;
}

/* ---- one process ---- */

/* A file of /proc/PID, of at most ENVIRONMENT_MAX bytes, with a 0 behind it; the caller frees it. NULL: it cannot be
 * read. */
static char *read_file(int32_t pid, const char *name, size_t *bytes)
{
    char path[64];
    ssize_t n = 1;

    snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, name);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    char *text = there(malloc(ENVIRONMENT_MAX + 1));
    *bytes = 0;
    while (n > 0 && *bytes < ENVIRONMENT_MAX) {
        GPUSYM_RESTART(n, read(fd, text + *bytes, ENVIRONMENT_MAX - *bytes));
        *bytes += n > 0 ? (size_t) n : 0;
    }
    close(fd);
    text[*bytes] = '\0';
    return text;
}

/* The job and the rank of a process, as what started it has told it. False: it is of no job. */
static bool find_job(info_rank_t *r)
{
    size_t bytes;
    char *text = read_file(r->pid, "environ", &bytes);

    r->job[0] = '\0';
    r->world_rank = -1;
    for (const char *p = text; NULL != text && p < text + bytes; p += strlen(p) + 1) {
        if (0 == strncmp(p, "PMIX_NAMESPACE=", 15)) {
            snprintf(r->job, sizeof(r->job), "%s", strchr(p, '=') + 1);
        } else if (0 == strncmp(p, "PMIX_RANK=", 10)) {
            r->world_rank = atoi(p + 10);
        }
    }
    free(text);
    return '\0' != r->job[0] && r->world_rank >= 0;
}

/* Whether it has loaded the component: what a rank starts has its environment too. */
static bool has_component(int32_t pid)
{
    char path[64], line[4096];
    bool has = false;

    snprintf(path, sizeof(path), "/proc/%d/maps", (int) pid);
    FILE *f = fopen(path, "re");
    while (NULL != f && !has && NULL != fgets(line, sizeof(line), f)) {
        has = NULL != strstr(line, "/mca_coll_gpusym.so");
    }
    if (NULL != f) {
        fclose(f);
    }
    return has;
}

static void describe(info_rank_t *r)
{
    char path[64], line[512];

    snprintf(path, sizeof(path), "/proc/%d/comm", (int) r->pid);
    (void) gpusym_file_line(path, line, sizeof(line));
    snprintf(r->command, sizeof(r->command), "%.31s", line);
    snprintf(path, sizeof(path), "/proc/%d/stat", (int) r->pid);
    (void) gpusym_file_line(path, line, sizeof(line));
    const char *end = strrchr(line, ')');
    r->state = NULL != end && ' ' == end[1] && '\0' != end[2] ? end[2] : '?';
}

/* The memory of its files of gpusym, in bytes. */
static double measure(int32_t pid)
{
    char path[320], target[64];
    struct stat st;
    const struct dirent *entry;
    double bytes = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int) pid);
    DIR *dir = opendir(path);
    while (NULL != dir && NULL != (entry = readdir(dir))) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int) pid, entry->d_name);
        const ssize_t n = readlink(path, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
        if (0 == strncmp(target, "/memfd:gpusym", 13) && 0 == stat(path, &st)) {
            bytes += 512.0 * (double) st.st_blocks;
        }
    }
    if (NULL != dir) {
        closedir(dir);
    }
    return bytes;
}

/* ---- all of a user ---- */

static bool owner_of(int32_t pid, uid_t *uid)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof(path), "/proc/%d", (int) pid);
    if (0 != stat(path, &st)) {
        return false;
    }
    *uid = st.st_uid;
    return true;
}

/* Whether process pid is `of`, or a descendant of it; of 0: of anybody. */
static bool is_of(int32_t pid, int32_t of)
{
    for (int i = 0; i < GENERATIONS_MAX && pid > 1 && 0 != of; i++) {
        if (pid == of) {
            return true;
        }
        pid = (int32_t) gpusym_pid_parent(pid);
    }
    return 0 == of;
}

/* A process of the user: a rank that has pages, or may get them. version: that of pages which cannot be read, if it is
 * of process `of`. */
static bool is_rank(info_rank_t *r, int32_t of, int *version)
{
    const int rc = gpusym_look_open(r->pid, &r->look);
    const bool of_job = GPUSYM_ERR_UNREACHABLE != rc && find_job(r);

    if (GPUSYM_ERR_BAD_PARAM == rc) {
        *version = is_of(r->pid, of) ? r->look.version : *version;
        return false;
    }
    if (GPUSYM_SUCCESS == rc && '\0' == r->job[0]) { /* without mpirun, or by one without PMIx */
        snprintf(r->job, sizeof(r->job), "process %d", (int) r->pid);
    }
    return GPUSYM_SUCCESS == rc || (of_job && has_component(r->pid));
}

static int compare(const void *a, const void *b)
{
    const info_rank_t *x = a, *y = b;
    const int job = strcmp(x->job, y->job);
    const bool opened[] = {x->look.fd >= 0, y->look.fd >= 0};

    return 0 != job                         ? job
           : x->world_rank != y->world_rank ? (x->world_rank > y->world_rank) - (x->world_rank < y->world_rank)
           : opened[0] != opened[1]         ? opened[1] - opened[0]
                                            : (x->pid > y->pid) - (x->pid < y->pid);
}

/* Keeps those that are told to stay. */
static void keep(info_ranks_t *ranks, bool (*stays)(const info_ranks_t *kept, const info_rank_t *r, const void *arg),
                 const void *arg)
{
    info_ranks_t kept = {.rank = ranks->rank};

    for (unsigned i = 0; i < ranks->n; i++) {
        info_rank_t r = ranks->rank[i];
        if (stays(&kept, &r, arg)) {
            kept.rank[kept.n++] = r;
        } else {
            gpusym_look_close(&r.look);
        }
    }
    ranks->n = kept.n;
}

/* Of several processes of a rank, as those that it has forked: the first, which has pages if one has. */
static bool is_first(const info_ranks_t *kept, const info_rank_t *r, const void *arg)
{
    const info_rank_t *last = 0 == kept->n ? NULL : &kept->rank[kept->n - 1];

    (void) arg;
    return NULL == last || r->look.fd >= 0 || r->world_rank != last->world_rank || 0 != strcmp(r->job, last->job);
}

static bool is_of_job(const info_ranks_t *kept, const info_rank_t *r, const void *job)
{
    (void) kept;
    return 0 == strcmp(r->job, job);
}

static void find_all(uid_t uid, int32_t of, info_ranks_t *ranks, int *version)
{
    const struct dirent *entry;
    DIR *dir = opendir("/proc");

    while (NULL != dir && NULL != (entry = readdir(dir))) {
        uid_t owner;
        info_rank_t r = {.pid = (int32_t) atoi(entry->d_name)};
        if (r.pid <= 0 || r.pid == getpid() || !owner_of(r.pid, &owner) || owner != uid || !is_rank(&r, of, version)) {
            continue;
        }
        describe(&r);
        r.shared_bytes = measure(r.pid);
        ranks->rank = there(realloc(ranks->rank, (ranks->n + 1) * sizeof(*ranks->rank)));
        ranks->rank[ranks->n++] = r;
    }
    if (NULL != dir) {
        closedir(dir);
    }
    if (ranks->n > 0) {
        qsort(ranks->rank, ranks->n, sizeof(*ranks->rank), compare);
    }
    keep(ranks, is_first, NULL);
}

/* ---- one job ---- */

/* The job of process pid, or of what it has started. NULL: none. *several: it has started several. */
static const char *job_of(const info_ranks_t *ranks, int32_t pid, bool *several)
{
    const char *job = NULL;

    for (unsigned i = 0; i < ranks->n; i++) {
        const info_rank_t *r = &ranks->rank[i];
        if (r->pid == pid) {
            *several = false;
            return r->job;
        }
        if (is_of(r->pid, pid)) {
            *several = *several || (NULL != job && 0 != strcmp(job, r->job));
            job = r->job;
        }
    }
    return job;
}

static const char *take_pid(const char *word, int32_t *pid, uid_t *uid)
{
    char *end;
    const long number = strtol(word, &end, 10);

    if (!isdigit((unsigned char) word[0]) || '\0' != *end || number <= 0 || number > INT32_MAX) {
        return refuse("\"%s\" is no process id", word);
    }
    *pid = (int32_t) number;
    if (!owner_of(*pid, uid)) {
        return refuse("there is no process %d on this host", (int) *pid);
    }
    if (*uid != geteuid() && 0 != geteuid()) {
        const struct passwd *user = getpwuid(*uid);
        return refuse(
            "process %d is another user's (%s, uid %u), whose processes this one may not read: ask as that user, "
            "or as root",
            (int) *pid, NULL != user ? user->pw_name : "without a name", (unsigned) *uid);
    }
    return NULL;
}

const char *info_ranks_find(const char *word, info_ranks_t *ranks, bool *several)
{
    char job[sizeof(ranks->rank->job)];
    int32_t pid = 0;
    uid_t uid = geteuid();
    int version = 0;

    *ranks = (info_ranks_t){.n = 0};
    *several = false;
    const char *error = NULL == word ? NULL : take_pid(word, &pid, &uid);
    if (NULL != error) {
        return error;
    }
    find_all(uid, pid, ranks, &version);
    const char *found = job_of(ranks, pid, several);
    if (NULL == found && 0 != version) {
        return refuse("a process here has gpusym of another version (pages %c): ask the gpusym_info of that version",
                      isprint(version) ? version : '?');
    }
    if (NULL == found && NULL == word) {
        return refuse("no job of this user on this host uses gpusym");
    }
    if (NULL == found) {
        return refuse("process %d is of no job that uses gpusym, nor has it started one on this host", (int) pid);
    }
    if (*several) {
        return refuse("%s jobs: which one? gpusym_info --job PID takes the id of a process of one",
                      NULL == word ? "this user has several" : "that process has started several");
    }
    snprintf(job, sizeof(job), "%s", found);
    keep(ranks, is_of_job, job);
    return NULL;
}

void info_ranks_free(info_ranks_t *ranks)
{
    for (unsigned i = 0; i < ranks->n; i++) {
        gpusym_look_close(&ranks->rank[i].look);
    }
    free(ranks->rank);
    *ranks = (info_ranks_t){.n = 0};
}
