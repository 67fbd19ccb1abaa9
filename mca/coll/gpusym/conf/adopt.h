/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The stock components that serve beside this one where only this one is named.
 */
#ifndef MCA_COLL_GPUSYM_CONF_ADOPT_H
#define MCA_COLL_GPUSYM_CONF_ADOPT_H

/* Prepends the stock components that coll_gpusym_adopt names to the framework's list; from mca_open_component. Open MPI
 * error code. */
int coll_gpusym_adopt(void);

#endif
