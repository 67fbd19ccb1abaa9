/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the component says: errors to the user. Verbose lines: GPUSYM_LOG.
 */
#ifndef MCA_COLL_GPUSYM_CONF_HELP_H
#define MCA_COLL_GPUSYM_CONF_HELP_H

#include <stdbool.h>
#include <stddef.h>

#include "mca/common/gpusym/log.h"

/* An error to the user in three parts (what happened, where, what to do), to stderr.
 * topic: one of conf/help.def, which gives the types of the arguments. */
void coll_gpusym_help(const char *topic, ...);
/* Whether a text is another than that of the last such call, which is kept in `last`: for what is reported once,
 * however many communicators it is true of. Any thread. */
bool coll_gpusym_is_news(const char *text, char *last, size_t size);

#endif
