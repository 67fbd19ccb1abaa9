/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * MPI_T's events: see events.h.
 */
#include "mca/coll/gpusym/trace/events.h"

#include <stddef.h>
#include <stdio.h>

#include "mca/coll/gpusym/args/names.h"
#include "mca/common/gpusym/log.h"
#include "mca/common/ompi/ompi_compat.h"
#include "opal/mca/base/mca_base_pvar.h"

#if GPUSYM_OMPI_EVENTS

/* What callbacks read, element by element: from offset 0 on, in this order. docs/parameters.md describes them. */
typedef struct {
    unsigned call;
    int form;
} begin_t;
typedef struct {
    unsigned call;
    int form;
    unsigned long long bytes, ns, waiting;
    int error;
} end_t;

#define UINT MCA_BASE_VAR_TYPE_UNSIGNED_INT
#define INT MCA_BASE_VAR_TYPE_INT
#define ULL MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG
enum { BEGIN, END, EVENTS };
static const struct {
    const char *name, *doc;
    int n;
    mca_base_var_type_t type[6];
    ptrdiff_t offset[6];
} events[EVENTS] = {
    {"begin", "has begun. Elements: call, form", 2, {UINT, INT}, {offsetof(begin_t, call), offsetof(begin_t, form)}},
    {"end",
     "is complete. Elements: call, form, bytes, time, waiting, error",
     6,
     {UINT, INT, ULL, ULL, ULL, INT},
     {offsetof(end_t, call), offsetof(end_t, form), offsetof(end_t, bytes), offsetof(end_t, ns),
      offsetof(end_t, waiting), offsetof(end_t, error)}},
};

static mca_base_event_t *registered[COLL_GPUSYM_COLLS][EVENTS]; /* Open MPI's, never freed */
static mca_base_event_source_t *source;                         /* likewise */
static unsigned wanted; /* of these events, with a callback; under Open MPI's lock of events */

/* An event has got its first callback, or has lost its last. */
static void note_callbacks(void *unused, bool active)
{
    (void) unused;
    if (active) {
        wanted += coll_gpusym_trace_want();
    } else if (wanted > 0) {
        wanted--;
        coll_gpusym_trace_spare();
    }
}

static int register_event(const mca_base_component_t *component, unsigned coll, unsigned which)
{
    char name[64], text[192];
    snprintf(name, sizeof name, "%s_%s", coll_gpusym_name(coll), events[which].name);
    snprintf(text, sizeof text, "A call of %s on GPU memory, in any form, %s", coll_gpusym_mpi_name(coll),
             events[which].doc);
    const int index = mca_base_component_event_register(
        component, name, text, OPAL_INFO_LVL_9, events[which].n, events[which].type, events[which].offset, NULL,
        MCA_BASE_VAR_BIND_NO_OBJECT, (mca_base_event_flag_t) 0, source, NULL);
    return index < 0 ? index : mca_base_event_get_by_index(index, &registered[coll][which]);
}

void coll_gpusym_events_register(const mca_base_component_t *component)
{
    int rv = mca_base_event_source_register("ompi.coll_gpusym", "Collectives of gpusym; times in nanoseconds",
                                            MCA_BASE_EVENT_SOURCE_UNORDERED, 1000000000, INT64_MAX, NULL, true, NULL);
    rv = rv < 0 ? rv : mca_base_event_source_get_by_index(rv, &source);
    for (unsigned i = 0; OPAL_SUCCESS == rv && i < COLL_GPUSYM_COLLS * EVENTS; i++) {
        rv = register_event(component, i / EVENTS, i % EVENTS);
    }
    if (OPAL_SUCCESS == rv) {
        source->activate_fn = note_callbacks;
    } else {
        GPUSYM_LOG(1, "no MPI_T events: Open MPI's error %d", rv);
    }
}

/* Callbacks may not call MPI: the call may be one that another thread, or progress, has ended. */
static void raise_event(mca_base_event_t *event, const void *data)
{
    mca_base_event_raise_internal(event, NULL, NULL, data, MCA_BASE_EVENT_CB_REQUIRE_MPI_RESTRICTED);
}

void coll_gpusym_events_begin(uint32_t number)
{
    const coll_gpusym_record_t *r = coll_gpusym_trace_record(number);
    mca_base_event_t *event = registered[r->coll][BEGIN];
    if (NULL != event && mca_base_event_active(event)) {
        raise_event(event, &(begin_t){.call = number, .form = r->form});
    }
}

void coll_gpusym_events_end(uint32_t number)
{
    const coll_gpusym_record_t *r = coll_gpusym_trace_record(number);
    mca_base_event_t *event = registered[r->coll][END];
    if (NULL != event && mca_base_event_active(event)) {
        raise_event(event, &(end_t){.call = number,
                                    .form = r->form,
                                    .bytes = r->bytes,
                                    .ns = r->returned - r->entered,
                                    .waiting = 0 != r->there ? r->there - r->posted : 0,
                                    .error = r->error});
    }
}

void coll_gpusym_events_forget(void)
{
    if (NULL != source) {
        source->activate_fn = NULL;
    }
    wanted = 0; /* coll_gpusym_trace_stop() forgets them too */
}

#else

void coll_gpusym_events_register(const mca_base_component_t *component)
{
    (void) component;
}

void coll_gpusym_events_begin(uint32_t number)
{
    (void) number;
}

void coll_gpusym_events_end(uint32_t number)
{
    (void) number;
}

void coll_gpusym_events_forget(void)
{
}

#endif
