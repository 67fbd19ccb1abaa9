/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * gpusym_info: what gpusym finds here, which parameters hold, which algorithm it would take, whether links work.
 * docs/guide.md says how to read it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/job.h"
#include "info/check.h"
#include "info/job.h"
#include "info/machine.h"
#include "info/param.h"
#include "info/print.h"
#include "info/why.h"

enum { WORDS_MAX = 5, USAGE = 2 /* exit status */ };

static struct {
    char mode; /* 'p', 'w', 'c', 'b' of options.def; 0: the machine */
    bool json;
    const char *word[WORDS_MAX];
    int words;
} asked;

/* Wrong arguments: the ranks of a job have the same, and one tells. */
__attribute__((noreturn)) static void refuse(const char *what, const char *word)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");

    if (NULL == rank || 0 == strcmp(rank, "0")) {
        fprintf(stderr, "gpusym_info: %s%s\n", what, word);
        fputs("usage: "
#define INFO_LINE(arguments, text) "gpusym_info " arguments "\n       "
#include "bench/options.def"
              "gpusym_info --help, --version\n",
              stderr);
    }
    exit(USAGE);
}

__attribute__((noreturn)) static void help(void)
{
    puts("usage:");
#define INFO_LINE(arguments, text) puts("  gpusym_info " arguments "\n      " text);
#include "bench/options.def"
    puts("\nOptions:");
#define BENCH_INFO BENCH_PRINT
#define INFO BENCH_PRINT
#include "bench/options.def"
    exit(0);
}

static void take_option(const char *name)
{
    static const struct {
        const char *name;
        char letter;
    } options[] = {
#define INFO(name, argument, letter, text) {"--" name, letter},
#include "bench/options.def"
        {"-p", 'p'}};

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        if (0 != strcmp(name, options[i].name)) {
            continue;
        }
        if ('j' == options[i].letter) {
            asked.json = true;
        } else if (0 != asked.mode) {
            refuse("one of --params, --why, --check and --job at a time: ", name);
        } else {
            asked.mode = options[i].letter;
        }
        return;
    }
    refuse("no such option: ", name);
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (0 == strcmp(argv[i], "--help")) {
            help();
        } else if ('-' == argv[i][0]) {
            take_option(argv[i]);
        } else if (asked.words == WORDS_MAX) {
            refuse("too many words: ", argv[i]);
        } else {
            asked.word[asked.words++] = argv[i];
        }
    }
    if ('w' == asked.mode && asked.words < WORDS_MAX - 1) {
        refuse("--why takes COLLECTIVE BYTES TYPE RANKS [OP]", "");
    }
    if ('w' != asked.mode && asked.words > ('p' == asked.mode || 'b' == asked.mode)) {
        refuse("too many words: ", asked.word[asked.words - 1]);
    }
}

/* What needs no job. */
static void tell(info_item_t *root)
{
    const info_why_t why = {asked.word[0], asked.word[1], asked.word[2], asked.word[3], asked.word[4]};
    const char *wrong;

    info_open();
    switch (asked.mode) {
    case 'p':
        if (0 == info_params_tell(root, asked.word[0])) {
            refuse(info_component_there() ? "no parameter of gpusym has such a name: "
                                          : "Open MPI does not find gpusym: see gpusym_info without arguments",
                   NULL != asked.word[0] && info_component_there() ? asked.word[0] : "");
        }
        break;
    case 'w':
        wrong = info_why_tell(root, &why);
        if (NULL != wrong) {
            refuse("--why: ", wrong);
        }
        break;
    default:
        info_machine_tell(root);
        break;
    }
    info_close();
}

int main(int argc, char **argv)
{
    info_item_t *root = info_group(NULL, NULL);
    bool right = true;

    bench_version("gpusym_info", argc, argv);
    read_arguments(argc, argv);
    if (asked.json && !info_can_json()) {
        refuse("--json: this gpusym was built without jansson", "");
    }
    if ('c' == asked.mode) {
        right = info_check(root);
    } else if ('b' == asked.mode) {
        const char *wrong = info_job_tell(root, asked.words > 0 ? asked.word[0] : NULL);
        if (NULL != wrong) {
            fprintf(stderr, "gpusym_info: %s\n", wrong);
        }
        right = NULL == wrong;
    } else {
        tell(root);
    }
    if (0 == bench_rank) {
        (asked.json ? info_print_json : info_print_text)(root);
        fflush(stdout);
    }
    if ('c' == asked.mode) {
        info_check_end();
    }
    info_free(root);
    return right || 0 != bench_rank ? 0 : 1; /* mpirun kills the ranks that have not ended behind one that fails */
}
