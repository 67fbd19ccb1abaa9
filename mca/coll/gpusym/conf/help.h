/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the component says: errors to the user, and verbose lines.
 */
#ifndef MCA_COLL_GPUSYM_CONF_HELP_H
#define MCA_COLL_GPUSYM_CONF_HELP_H

#include "opal/util/output.h"

/* An error to the user in three parts (what happened, where, what to do), to stderr.
 * topic: one of conf/help.def, which gives the types of the arguments. */
void coll_gpusym_help(const char *topic, ...);

/* Of opal_output; -1 before open and after close. */
extern int coll_gpusym_output;
/* Opens the stream of the verbose lines, at a level; and closes it. */
void coll_gpusym_output_open(int level);
void coll_gpusym_output_close(void);

/* A verbose line, see coll_gpusym_verbose; the first argument is a literal format. */
#define COLL_GPUSYM_VERBOSE(level, ...) opal_output_verbose((level), coll_gpusym_output, "coll:gpusym: " __VA_ARGS__)

#endif
