/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The unit tests' random numbers: a seed for every run, printed, and taken from the environment, or the command line
 * to repeat one; and which tests are run.  To be included after cmocka.h.
 */
#ifndef TEST_UNIT_RANDOM_H
#define TEST_UNIT_RANDOM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t seed, random_state;

/* splitmix64 */
__attribute__((unused)) static uint64_t next_random(void)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

/* Whether that form is wanted (test/run.sh). */
static bool form_is(const char *name)
{
    const char *form = getenv("GPUSYM_TEST_FORM");
    return NULL != form && 0 == strcmp(form, name);
}

/* Whether a test that can be longer is to be. */
__attribute__((unused)) static bool long_form(void)
{
    return form_is("long") || form_is("whole");
}

/* Takes the seed from argv[1], else from GPUSYM_TEST_SEED of the environment, else makes one; prints it. */
static void random_start(int argc, char **argv)
{
    const char *text = argc > 1 ? argv[1] : getenv("GPUSYM_TEST_SEED");
    seed = NULL != text ? strtoull(text, NULL, 0) : (uint64_t) time(NULL) << 16 ^ (uint64_t) getpid();
    random_state = seed;
    print_message("seed %lu\n", (unsigned long) seed);
}

#endif
