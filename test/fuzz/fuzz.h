/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz harnesses: each is one function, which takes any bytes as what a user or a peer has written. Built with
 * libFuzzer where there is a compiler that has it, else with main.c. test/fuzz.sh runs them.
 */
#ifndef TEST_FUZZ_FUZZ_H
#define TEST_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns 0. What is wrong aborts. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is promised, also where NDEBUG is defined. */
#define MUST(what)                                                                         \
    do {                                                                                   \
        if (!(what)) {                                                                     \
            fprintf(stderr, "%s:%d: this does not hold: %s\n", __FILE__, __LINE__, #what); \
            abort();                                                                       \
        }                                                                                  \
    } while (0)

/* The rest of an input. */
typedef struct {
    const uint8_t *at;
    size_t left;
} fuzz_input_t;

/* Takes up to n bytes; what is missing is 0. */
static inline void fuzz_take(fuzz_input_t *in, void *to, size_t n)
{
    const size_t there = n < in->left ? n : in->left;

    memset(to, 0, n);
    if (0 != there) {
        memcpy(to, in->at, there);
        in->at += there;
        in->left -= there;
    }
}

static inline uint64_t fuzz_number(fuzz_input_t *in, size_t bytes)
{
    uint64_t value = 0;

    fuzz_take(in, &value, bytes);
    return value;
}

#endif
