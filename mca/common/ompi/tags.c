/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Messages of collectives: see tags.h.
 */
#include "mca/common/ompi/tags.h"

_Thread_local unsigned gpusym_tags_exchanges;
