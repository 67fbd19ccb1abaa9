/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the component says: errors to the user. Verbose lines: GPUSYM_LOG.
 */
#ifndef MCA_COLL_GPUSYM_CONF_HELP_H
#define MCA_COLL_GPUSYM_CONF_HELP_H

#include "mca/common/gpusym/log.h"

/* An error to the user in three parts (what happened, where, what to do), to stderr.
 * topic: one of conf/help.def, which gives the types of the arguments. */
void coll_gpusym_help(const char *topic, ...);

#endif
