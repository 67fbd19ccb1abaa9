/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Files of rules, and the loading of their reader: see rules.h.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "mca/common/gpusym/rules/rules.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "mca/common/gpusym/common.h"

/* ---- the reader ---- */

#define READER_LIBRARY "libgpusym_rules.so"

/* `lock` covers the rest. */
static struct {
    pthread_mutex_t lock;
    bool tried;
    gpusym_rules_reader_t *read; /* NULL: why */
    char why[512];
} reader = {.lock = PTHREAD_MUTEX_INITIALIZER, .why = "gpusym was built without jansson, which reads rules"};

#if GPUSYM_HAVE_JANSSON
/* With the lock held. The library lies beside this one. */
static void load_reader(void)
{
    char path[PATH_MAX + sizeof READER_LIBRARY];
    void *library = NULL;
    Dl_info here;

    if (0 != dladdr(&reader, &here) && NULL != here.dli_fname && strlen(here.dli_fname) < PATH_MAX) {
        strcpy(path, here.dli_fname);
        char *name = strrchr(path, '/');
        strcpy(NULL == name ? path : name + 1, READER_LIBRARY);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (NULL != library) {
        *(void **) &reader.read = dlsym(library, "gpusym_rules_json");
    }
    if (NULL == reader.read) {
        const char *error = dlerror();
        snprintf(reader.why, sizeof reader.why, "%s", NULL == error ? READER_LIBRARY " is missing" : error);
    }
}
#endif

bool gpusym_rules_read(const char *path, gpusym_rules_file_t *file, char *why, size_t size)
{
    pthread_mutex_lock(&reader.lock);
    if (!reader.tried) {
        reader.tried = true;
#if GPUSYM_HAVE_JANSSON
        load_reader();
#endif
    }
    gpusym_rules_reader_t *read = reader.read;
    if (NULL == read) {
        snprintf(why, size, "%s: %s", path, reader.why);
    }
    pthread_mutex_unlock(&reader.lock);
    return NULL != read && read(path, file, why, size);
}

/* ---- the file for a communicator ---- */

void gpusym_rules_name(char *name, size_t size, int cc, uint32_t nranks)
{
    char gpu[16] = "sim";

    if (cc > 0) {
        snprintf(gpu, sizeof gpu, "sm%d", cc);
    }
    snprintf(name, size, "%s-%u.json", gpu, nranks);
}

/* The file that was read last, and how it was then: programs make many communicators. */
static struct {
    pthread_mutex_t lock;
    struct stat st;
    gpusym_rules_file_t file; /* path NULL: none */
} last = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_last(const char *path, const struct stat *st)
{
    return NULL != last.file.path && 0 == strcmp(last.file.path, path) && st->st_dev == last.st.st_dev &&
           st->st_ino == last.st.st_ino && st->st_size == last.st.st_size &&
           st->st_mtim.tv_sec == last.st.st_mtim.tv_sec && st->st_mtim.tv_nsec == last.st.st_mtim.tv_nsec;
}

/* With the lock held. */
static bool read_last(const char *path, const struct stat *st, char *why, size_t size)
{
    if (is_last(path, st)) {
        return true;
    }
    gpusym_rules_file_free(&last.file);
    if (!gpusym_rules_read(path, &last.file, why, size)) {
        return false;
    }
    last.st = *st;
    return true;
}

static bool stat_file(const char *path, struct stat *st)
{
    int rv;

    GPUSYM_RESTART(rv, stat(path, st));
    return 0 == rv;
}

/* Finds the file. False: there is none, and in why "", or what is wrong. */
static bool find_file(const char *where, const char *name, char path[PATH_MAX], struct stat *st, char *why, size_t size)
{
    const char *folder = '\0' == *where ? GPUSYM_RULES_FOLDER : where;
    bool there = stat_file(folder, st), optional = '\0' == *where;

    snprintf(path, PATH_MAX, "%s", folder);
    if (there && S_ISDIR(st->st_mode)) {
        optional = true;
        errno = ENAMETOOLONG;
        there = snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX && stat_file(path, st);
    }
    if (!there && (ENOENT != errno || !optional)) {
        snprintf(why, size, "%s: %s", path, strerror(errno));
    }
    return there;
}

gpusym_rules_t *gpusym_rules_open(const char *where, uint32_t nranks, const char *gpu, int cc, char *why, size_t size)
{
    char path[PATH_MAX], name[64];
    gpusym_rules_t *rules = NULL;
    struct stat st;

    *why = '\0';
    gpusym_rules_name(name, sizeof name, cc, nranks);
    if (0 == strcmp(where, "none") || !find_file(where, name, path, &st, why, size)) {
        return NULL;
    }
    pthread_mutex_lock(&last.lock);
    if (read_last(path, &st, why, size)) {
        rules = gpusym_rules_make(&last.file, nranks, gpu);
    }
    pthread_mutex_unlock(&last.lock);
    return rules;
}
