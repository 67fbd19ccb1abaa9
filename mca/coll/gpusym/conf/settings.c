/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Settings of a communicator: see settings.h.
 */
#include "mca/coll/gpusym/conf/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "kernels/kernels.h"
#include "mca/coll/gpusym/args/names.h"
#include "mca/coll/gpusym/conf/params.h"

#define KEY_MAX 27 /* characters of a key to which Open MPI 4.1 subscribes */

void coll_gpusym_settings_clear(coll_gpusym_settings_t *s)
{
    for (unsigned key = 0; key < COLL_GPUSYM_KEYS; key++) {
        s->value[key] = COLL_GPUSYM_UNSET;
    }
}

const char *coll_gpusym_key_name(unsigned key, char *text, size_t size)
{
    static const char *const names[] = {[COLL_GPUSYM_KEY_MAX_BLOCKS] = "gpusym_max_blocks",
                                        [COLL_GPUSYM_KEY_COPY_ENGINES_ONLY] = "gpusym_copy_engines_only",
                                        [COLL_GPUSYM_KEY_REPRODUCIBLE] = "gpusym_reproducible",
                                        [COLL_GPUSYM_KEY_NAME] = GPUSYM_COMM_NAME_KEY};

    if (key < COLL_GPUSYM_NATIVES) {
        const int length = snprintf(text, size, "gpusym_%s_algorithm", coll_gpusym_name(key));
        if (length > KEY_MAX) {
            snprintf(text, size, "gpusym_%s", coll_gpusym_name(key));
        }
    } else {
        snprintf(text, size, "%s", names[key]);
    }
    return text;
}

unsigned coll_gpusym_key_find(const char *name)
{
    char text[64];
    unsigned key = 0;

    while (key < COLL_GPUSYM_KEYS_ALL && 0 != strcmp(name, coll_gpusym_key_name(key, text, sizeof text))) {
        key++;
    }
    return key;
}

static bool parse_blocks(const char *text, int *value)
{
    char *end;
    const unsigned long blocks = strtoul(text, &end, 10);

    *value = (int) blocks;
    return isdigit((unsigned char) *text) && '\0' == *end && blocks <= GPUSYM_BLOCKS_MAX;
}

static bool parse_flag(const char *text, int *value)
{
    static const char *const words[][2] = {{"false", "true"}, {"no", "yes"}, {"0", "1"}};

    for (unsigned i = 0; i < 2 * sizeof words / sizeof words[0]; i++) {
        if (0 == strcasecmp(text, words[i / 2][i % 2])) {
            *value = (int) (i % 2);
            return true;
        }
    }
    return false;
}

bool coll_gpusym_key_parse(unsigned key, const char *text, int *value, char *allowed, size_t size)
{
    if (key < COLL_GPUSYM_NATIVES) {
        return coll_gpusym_algorithm_parse(key, text, value, allowed, size);
    }
    if (COLL_GPUSYM_KEY_MAX_BLOCKS == key) {
        snprintf(allowed, size, "a number of blocks from 0 to %u", GPUSYM_BLOCKS_MAX);
        return parse_blocks(text, value);
    }
    snprintf(allowed, size, "true, false");
    return parse_flag(text, value);
}

const char *coll_gpusym_key_text(unsigned key, int value)
{
    static _Thread_local char number[16];

    if (COLL_GPUSYM_UNSET == value) {
        return NULL;
    }
    if (key < COLL_GPUSYM_NATIVES) {
        return coll_gpusym_algorithm_text(value);
    }
    if (COLL_GPUSYM_KEY_MAX_BLOCKS != key) {
        return 0 != value ? "true" : "false";
    }
    snprintf(number, sizeof number, "%d", value);
    return number;
}
