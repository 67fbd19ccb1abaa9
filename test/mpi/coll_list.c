/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What each collective is, see coll_list.h.
 */
#include "test/mpi/coll_list.h"

static const struct {
    const char *name;
    unsigned what;
} colls[] = {
#define COLL(id, Name, name, what, ...) {#name, what},
#define COLL_LOCAL COLL
#include "test/mpi/colls.def"
};

const char *coll_name(enum coll_id id)
{
    return colls[id].name;
}

unsigned coll_what(enum coll_id id)
{
    return colls[id].what;
}

const char *coll_mode_name(enum coll_mode mode)
{
    static const char *const names[] = {"blocking", "nonblocking", "persistent"};

    return names[mode];
}
