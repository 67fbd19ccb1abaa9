/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * All ranks have answered: what becomes of the call. A pure function of what all of them know alike.
 */
#ifndef MCA_COLL_GPUSYM_CALL_DECIDE_H
#define MCA_COLL_GPUSYM_CALL_DECIDE_H

#include "mca/common/gpusym/agree/agreement.h"

typedef enum {
    COLL_GPUSYM_DECIDED_CORRUPT,  /* rank: whose entry holds values that no rank posts */
    COLL_GPUSYM_DECIDED_MISMATCH, /* the ranks are not in the same call */
    COLL_GPUSYM_DECIDED_FORWARD,  /* no rank has GPU memory: the fallback's, on the users' buffers */
    COLL_GPUSYM_DECIDED_STAGE,    /* for `reason` */
    COLL_GPUSYM_DECIDED_AGREED,   /* native, and nothing is to be set up for it */
    COLL_GPUSYM_DECIDED_EMPTY,    /* nothing goes from anyone to anyone */
    COLL_GPUSYM_DECIDED_SIZES,    /* native, but not all that is sent is taken, perhaps: sizes are to be compared */
    COLL_GPUSYM_DECIDED_GO,       /* native */
} coll_gpusym_decided_t;

typedef struct {
    coll_gpusym_decided_t kind;
    int reason; /* enum coll_gpusym_reason; -1: none */
    int rank;   /* -1: none */
} coll_gpusym_decision_t;

/* What is asked. */
typedef struct {
    const gpusym_agreement_read_t *read; /* all entries have been read */
    bool agree_only;                     /* a persistent call's init */
    bool moves;                          /* the collective moves bytes: its ranks may send more than is taken */
    bool takes_host, unset;              /* of the native way: coll_gpusym_way_t */
} coll_gpusym_question_t;

coll_gpusym_decision_t coll_gpusym_decide(const coll_gpusym_question_t *q);

#endif
