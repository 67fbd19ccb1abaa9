/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A picture of some collectives, as SVG: see print.h. A row for each rank, time from left to right.
 */
#include "info/trace/print.h"

#include <string.h>

/* Pixels. */
enum { WIDTH = 960, LEFT = 80, RIGHT = 16, TOP = 44, ROW = 46, BAR = 20, FOOT = 56 };

static const struct {
    const char *name, *color;
} kinds[] = {{"host", "#b8c4d6"}, {"waiting for ranks", "#f2b26b"}, {"GPU", "#3f7fbf"}, {"staged", "#8f6bb3"}};
enum { HOST, WAITS, WORKS, STAGED, KINDS };

static struct {
    FILE *out;
    int64_t from, until;
} to;

static double x_of(int64_t time)
{
    const int64_t in = time < to.from ? to.from : time > to.until ? to.until : time;
    return LEFT + (double) (in - to.from) * (WIDTH - LEFT - RIGHT) / (double) (to.until - to.from);
}

static int y_of(uint32_t row)
{
    return TOP + (int) row * ROW;
}

/* Text as XML has it. */
static void put_text(const char *text)
{
    for (; '\0' != *text; text++) {
        const char *const entity = '&' == *text ? "&amp;" : '<' == *text ? "&lt;" : '>' == *text ? "&gt;" : NULL;
        if (NULL != entity) {
            fputs(entity, to.out);
        } else {
            fputc(*text, to.out);
        }
    }
}

static void put_bar(int kind, uint32_t row, int64_t from, int64_t until, const char *title)
{
    if (0 == from || until <= from || until < to.from || from > to.until) {
        return;
    }
    fprintf(to.out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>", x_of(from), y_of(row),
            x_of(until) - x_of(from), BAR, kinds[kind].color);
    put_text(title);
    fputs("</title></rect>\n", to.out);
}

static void put_label(double x, double y, const char *anchor, const char *text)
{
    fprintf(to.out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    put_text(text);
    fputs("</text>\n", to.out);
}

static void put_call(const trace_call_t *c)
{
    char name[64], title[160];
    const int64_t end = trace_end_of(c);
    const int64_t work = 0 != c->at.gpu_begin ? c->at.gpu_begin : 0 != c->at.launched ? c->at.launched : c->at.there;
    const bool staged = '\0' == c->algorithm[0];
    snprintf(title, sizeof title, "%s, call %llu, %llu bytes, %.1f us", trace_mpi_name(c->coll, name, sizeof name),
             (unsigned long long) c->seq, (unsigned long long) c->bytes, (double) (end - c->at.entered) / 1e3);
    put_bar(HOST, c->file, c->at.entered, end, title);
    put_bar(WAITS, c->file, c->at.posted, c->at.there, title);
    put_bar(staged ? STAGED : WORKS, c->file, work > c->at.there ? work : c->at.there,
            0 != c->at.gpu_end ? c->at.gpu_end : end, title);
}

static void put_arrows(const trace_t *t, const trace_group_t *g)
{
    const trace_call_t *last = &t->call[g->first + g->last];
    for (size_t i = g->first; i < g->first + g->n && g->whole && 0 != last->at.posted; i++) {
        const trace_call_t *c = &t->call[i];
        /* Where it is to be seen: half of a percent of the picture. */
        if (c == last || 0 == c->at.there || g->came - c->at.posted < (to.until - to.from) / 200) {
            continue;
        }
        const bool down = c->file > last->file;
        fprintf(to.out,
                "<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%d\" stroke=\"#444\" marker-end=\"url(#head)\"/>\n",
                x_of(last->at.posted), y_of(last->file) + (down ? BAR : 0), x_of(c->at.there),
                y_of(c->file) + (down ? -1 : BAR + 1));
    }
}

/* 1, 2 or 5 times a power of ten: about ten of them in the picture. */
static int64_t find_step(int64_t span)
{
    static const int64_t leading[] = {1, 2, 5};
    for (int64_t power = 1;; power *= 10) {
        for (unsigned i = 0; i < 3; i++) {
            if (power * leading[i] * 12 > span) {
                return power * leading[i];
            }
        }
    }
}

static void put_axis(uint32_t rows)
{
    const int64_t step = find_step(to.until - to.from);
    const int y = y_of(rows) - ROW + BAR + 14;
    char text[32];
    fprintf(to.out, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"#888\"/>\n", LEFT, y, WIDTH - RIGHT, y);
    for (int64_t at = 0; at <= to.until - to.from; at += step) {
        const double x = x_of(to.from + at);
        fprintf(to.out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#888\"/>\n", x, y, x, y + 4);
        snprintf(text, sizeof text, "%g", (double) at / 1e3);
        put_label(x, y + 18, "middle", text);
    }
    put_label(WIDTH - RIGHT, y + 34, "end", "\xc2\xb5s");
}

static void put_legend(void)
{
    double x = LEFT;
    for (int i = 0; i < KINDS; i++) {
        fprintf(to.out, "<rect x=\"%.1f\" y=\"14\" width=\"14\" height=\"14\" fill=\"%s\"/>\n", x, kinds[i].color);
        put_label(x + 20, 26, "start", kinds[i].name);
        x += 44 + 7.2 * (double) strlen(kinds[i].name);
    }
    fprintf(to.out, "<line x1=\"%.1f\" y1=\"21\" x2=\"%.1f\" y2=\"21\" stroke=\"#444\" marker-end=\"url(#head)\"/>\n",
            x, x + 26);
    put_label(x + 36, 26, "start", "the last rank has come");
}

static size_t find_longest(const trace_t *t)
{
    size_t longest = 0;
    for (size_t i = 0; i < t->groups; i++) {
        longest = t->group[i].whole && t->group[i].longest > t->group[longest].longest ? i : longest;
    }
    return longest;
}

static void find_times(const trace_t *t, size_t first, size_t end)
{
    to.from = INT64_MAX;
    to.until = INT64_MIN;
    for (size_t g = first; g < end; g++) {
        for (size_t i = t->group[g].first; i < t->group[g].first + t->group[g].n; i++) {
            const trace_call_t *c = &t->call[i];
            to.from = c->at.entered < to.from ? c->at.entered : to.from;
            to.until = trace_end_of(c) > to.until ? trace_end_of(c) : to.until;
        }
    }
    to.until += to.until <= to.from;
}

void trace_print_picture(const trace_t *t, unsigned number, unsigned calls, FILE *out)
{
    const size_t longest = find_longest(t), half = calls / 2;
    const size_t wanted = number > 0 ? number - 1 : longest > half ? longest - half : 0;
    const size_t first = wanted < t->groups ? wanted : t->groups - 1;
    const size_t end = first + calls < t->groups ? first + calls : t->groups;
    const int height = y_of(t->files) - ROW + BAR + FOOT;
    char text[32];
    to.out = out;
    find_times(t, first, end);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"13\">\n"
            "<defs><marker id=\"head\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"3\" orient=\"auto\">"
            "<path d=\"M0,0 L7,3 L0,6 z\" fill=\"#444\"/></marker></defs>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
            WIDTH, height, WIDTH, height, WIDTH, height);
    put_legend();
    for (uint32_t r = 0; r < t->files; r++) {
        snprintf(text, sizeof text, "rank %d", t->file[r].rank);
        put_label(LEFT - 10, y_of(r) + BAR - 5, "end", text);
    }
    for (size_t g = first; g < end; g++) {
        for (size_t i = t->group[g].first; i < t->group[g].first + t->group[g].n; i++) {
            put_call(&t->call[i]);
        }
    }
    for (size_t g = first; g < end; g++) {
        put_arrows(t, &t->group[g]);
    }
    put_axis(t->files);
    fputs("</svg>\n", out);
}
