/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Settings of a communicator, which take the place of parameters: the info keys of MPI_Comm_dup_with_info and
 * MPI_Comm_set_info.
 */
#ifndef MCA_COLL_GPUSYM_CONF_SETTINGS_H
#define MCA_COLL_GPUSYM_CONF_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "mca/coll/gpusym/args/args.h"
#include "mca/common/ompi/ompi_compat.h"

/* The keys. Those below COLL_GPUSYM_NATIVES are gpusym_<collective>_algorithm, by enum coll_gpusym_coll (of long names
 * gpusym_<collective>): an algorithm as in coll_gpusym_params_t. The name has no value here: gpusym_comm_label() reads
 * it in the communicator's info. */
enum {
    COLL_GPUSYM_KEY_MAX_BLOCKS = COLL_GPUSYM_NATIVES, /* most blocks of a launch; 0: no limit */
    COLL_GPUSYM_KEY_COPY_ENGINES_ONLY,                /* copy engines move data wherever they can; 0 or 1 */
    COLL_GPUSYM_KEY_REPRODUCIBLE,                     /* as the parameter; 0 or 1 */
    COLL_GPUSYM_KEYS,                                 /* that have a value */
    COLL_GPUSYM_KEY_NAME = COLL_GPUSYM_KEYS,
    COLL_GPUSYM_KEYS_ALL
};

/* The value of a key that is not set: the parameter holds, or the default. */
#define COLL_GPUSYM_UNSET (-3)

typedef struct {
    int value[COLL_GPUSYM_KEYS];
} coll_gpusym_settings_t;

/* Sets all to COLL_GPUSYM_UNSET. */
void coll_gpusym_settings_clear(coll_gpusym_settings_t *s);
/* Writes a key's name, "gpusym_bcast_algorithm"; returns text. */
const char *coll_gpusym_key_name(unsigned key, char *text, size_t size);
/* Finds a key by its name; COLL_GPUSYM_KEYS_ALL: there is none. */
unsigned coll_gpusym_key_find(const char *name);
/* Reads the value of a key other than the name. False: it is none; allowed: what is. */
bool coll_gpusym_key_parse(unsigned key, const char *text, int *value, char *allowed, size_t size);
/* A value as MPI_Comm_get_info returns it; NULL: it is not set. Valid until the thread's next such call. */
const char *coll_gpusym_key_text(unsigned key, int value);

#endif
