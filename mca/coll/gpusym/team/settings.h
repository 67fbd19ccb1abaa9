/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The settings of a communicator (conf/settings.h): what this rank wants, and what all ranks have agreed on.
 *
 * A rank that wants others than those agreed on says so in its posts of calls on GPU memory. If any rank does, all
 * compare what they want in that call, by one exchange. If all want the same, that holds from this call on, which is
 * posted again; if not, nothing changes, and a message names the ranks.
 */
#ifndef MCA_COLL_GPUSYM_TEAM_SETTINGS_H
#define MCA_COLL_GPUSYM_TEAM_SETTINGS_H

#include "mca/coll/gpusym/team/state.h"

/* The number of the wish of a call that was made when there was none. */
#define COLL_GPUSYM_WISH_NONE 1u

/* What this rank wants from some call of the communicator on. `number` is its own, from 2. */
typedef struct coll_gpusym_wish {
    struct coll_gpusym_wish *older; /* owned; NULL: none that a call may need */
    uint16_t number;
    bool posted;   /* a call has posted that it is wanted: it changes no more, but by the comparison */
    bool compared; /* which it has been through */
    coll_gpusym_settings_t settings;
} coll_gpusym_wish_t;

/* Sets a key to a value in the newest wish, or in a new one before it if calls are in flight or it has been posted.
 * Without memory for that nothing is set, which the ranks' next comparison finds. */
void coll_gpusym_wish_set(coll_gpusym_wish_t **newest, bool in_flight, unsigned key, int value);
/* Frees all; NULL is fine. */
void coll_gpusym_wishes_free(coll_gpusym_wish_t *newest);

/* Before each attempt to post a call. *number: of its wish, which is set to the newest one's if it is 0. Whether the
 * call has to post that this rank wants others than those that have been compared. */
bool coll_gpusym_settings_wanted(const coll_gpusym_team_t *t, coll_gpusym_wish_t *newest, uint16_t *number);

/* How a comparison is. */
typedef enum {
    COLL_GPUSYM_SETTINGS_WAITING,
    COLL_GPUSYM_SETTINGS_SAME,    /* nothing has changed */
    COLL_GPUSYM_SETTINGS_CHANGED, /* t->settings are others than before, on all ranks */
    COLL_GPUSYM_SETTINGS_FAILED
} coll_gpusym_settings_state_t;

/* Compares what all ranks of the team want, which is set up. number: of the wish of this call, 0: none. Of several
 * islands settings do not hold, and nothing is compared. Never waits. */
coll_gpusym_settings_state_t coll_gpusym_settings_compare(coll_gpusym_team_t *t, coll_gpusym_wish_t *newest,
                                                          uint16_t number);

/* The value that holds on all ranks; `otherwise` if there is none. */
static inline int coll_gpusym_setting(const coll_gpusym_team_t *t, unsigned key, int otherwise)
{
    return !t->has_settings || COLL_GPUSYM_UNSET == t->settings.value[key] ? otherwise : t->settings.value[key];
}

#endif
