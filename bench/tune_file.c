/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The file of rules that gpusym_tune writes: see tune.h. The format: docs/algorithms.md, Rules.
 */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/ranks.h"
#include "bench/tune.h"
#include "kernels/kernels.h"
#include "mca/common/gpusym/json.h"

#include "config.h"

static bool is_same(const bench_setting_t *a, const bench_setting_t *b)
{
    return a->algorithm == b->algorithm && a->blocks == b->blocks && a->threads == b->threads &&
           (a->resident_max > 0) == (b->resident_max > 0) && (a->resident_max < 0) == (b->resident_max < 0);
}

static bool is_ruled(const bench_point_t *p)
{
    return p->measured && !is_same(&p->best, &bench_table);
}

/* Between two points the rule of the nearer one holds, by the ratio of their bytes. Returns the last byte of p's. */
static size_t find_end(const bench_point_t *p, const bench_point_t *end)
{
    return p + 1 < end && p[1].coll == p->coll ? (size_t) sqrt((double) p->bytes * (double) p[1].bytes) : p->bytes;
}

static void write_rule(FILE *f, const bench_point_t *p, size_t from, size_t to, double gain, bool first)
{
    const bench_setting_t *s = &p->best;

    fprintf(f, "%s\n          { \"msg_size_min\": %zu, \"msg_size_max\": %zu, \"alg\": \"%s\"", first ? "" : ",", from,
            to, s->algorithm < 0 ? "auto" : gpusym_algorithm_name((unsigned) s->algorithm));
    if (s->blocks > 0) {
        fprintf(f, ", \"blocks\": %d", s->blocks);
    }
    if (s->threads > 0) {
        fprintf(f, ", \"threads\": %d", s->threads);
    }
    if (s->resident_max >= 0) { /* of a block, the table's unit; never less than the rule is for */
        fprintf(f, ", \"resident_max\": %zu", 0 == s->resident_max ? 0 : to);
    }
    fprintf(f, ",\n            \"comment\": \"%.2f of the table's time\" }", 1 / gain);
}

/* The rules of a collective's points, [from, end); neighbours that say the same are one. Returns how many. */
static int write_rules(FILE *f, const bench_point_t *from, const bench_point_t *end)
{
    size_t begin = 0;
    int n = 0;

    for (const bench_point_t *p = from; p < end; p++) {
        double gain = p->table_us / p->us;

        while (is_ruled(p) && p + 1 < end && is_ruled(&p[1]) && is_same(&p->best, &p[1].best)) {
            p++;
            gain = p->table_us / p->us < gain ? p->table_us / p->us : gain;
        }
        const size_t last = find_end(p, end);
        if (is_ruled(p)) {
            write_rule(f, p, begin, last, gain, 0 == n);
            n++;
        }
        begin = last + 1;
    }
    return n;
}

static bool has_rules(const bench_point_t *from, const bench_point_t *end)
{
    for (; from < end; from++) {
        if (is_ruled(from)) {
            return true;
        }
    }
    return false;
}

static int write_all(FILE *f, const bench_point_t *point, unsigned n, const bench_gpus_t *gpus)
{
    const bench_point_t *end = point + n;
    char comment[256], quoted[GPUSYM_JSON_ROOM(sizeof(comment))], gpu[GPUSYM_JSON_ROOM(sizeof(gpus->name))], date[32];
    time_t now = time(NULL);
    int rules = 0;
    bool first = true;

    strftime(date, sizeof(date), "%Y-%m-%d", gmtime(&now));
    snprintf(comment, sizeof(comment), "gpusym_tune " GPUSYM_VERSION ", %s: %d ranks, %s, %s", date, bench_ranks,
             gpus->name, bench_type()->name);
    gpusym_json_text(comment, quoted, sizeof(quoted));
    gpusym_json_text(gpus->name, gpu, sizeof(gpu));
    fprintf(f,
            "{\n  \"rule_file_version\": 3,\n  \"module\": \"gpusym\",\n  \"comment\": %s,\n"
            "  \"collectives\": {",
            quoted);
    for (const bench_point_t *next; point < end; point = next) {
        for (next = point; next < end && next->coll == point->coll; next++) {
        }
        if (!has_rules(point, next)) {
            continue;
        }
        fprintf(f,
                "%s\n    \"%s\": [\n      { \"comm_size_min\": %d, \"comm_size_max\": %d, \"gpu\": %s, \"link\": "
                "\"%s\",\n"
                "        \"rules\": [",
                first ? "" : ",", bench_coll_name(point->coll), bench_ranks, bench_ranks, gpu,
                gpus->nvlink ? "nvlink" : "pci");
        rules += write_rules(f, point, next);
        fprintf(f, "\n        ] }\n    ]");
        first = false;
    }
    fprintf(f, "\n  }\n}\n");
    return rules;
}

int bench_tune_write(const char *path, const bench_point_t *point, unsigned n, const bench_gpus_t *gpus)
{
    char draft[PATH_MAX];

    if (snprintf(draft, sizeof(draft), "%s.tmp", path) >= (int) sizeof(draft)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    FILE *f = fopen(draft, "we");
    if (NULL == f) {
        return -1;
    }
    const int rules = write_all(f, point, n, gpus);
    const bool written = 0 == fflush(f) && 0 == ferror(f) && 0 == fsync(fileno(f));
    if (0 == fclose(f) && written && 0 == rename(draft, path)) {
        return rules;
    }
    const int error = errno;
    (void) unlink(draft);
    errno = error;
    return -1;
}
