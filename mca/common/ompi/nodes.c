/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Nodes of datatypes: see nodes.h.
 *
 * Predefined datatypes get no attribute; they have a list of their own. An attribute of MPI_COMM_SELF, which
 * MPI_Finalize deletes before all else, takes the attributes back while Open MPI still has them: 4.1 ends attributes
 * before it releases datatypes and components.
 */
#include "mca/common/ompi/nodes.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ompi/communicator/communicator.h"
#include "ompi/runtime/mpiruntime.h"

#include "mca/common/gpusym/log.h"
#include "mca/common/gpusym/sanitizers.h"
#include "mca/common/ompi/attributes.h"
#include "mca/common/ompi/pieces.h"

/* What is kept for a datatype. */
typedef struct entry {
    struct ompi_datatype_t *dtype;
    gpusym_nodes_t *nodes; /* NULL: it cannot have any */
    struct entry *next;
} entry_t;

static struct {
    pthread_mutex_t lock; /* covers the lists. No function of MPI is called under it that might call delete_entry() */
    bool open;            /* the keys exist; atomic */
    bool closed;          /* MPI_Finalize has begun; atomic */
    int type_key, self_key;
    entry_t *living;     /* attributes */
    entry_t *predefined; /* read without the lock: entries stay */
    entry_t *dead;       /* of freed datatypes */
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER, .type_key = MPI_KEYVAL_INVALID, .self_key = MPI_KEYVAL_INVALID};

/* ---- reading a datatype ---- */

typedef struct {
    gpusym_node_t *node;
    size_t n, room;
} list_t;

/* Continues the last node by a row that lies before its last one: pieces.h has no such rows. */
static bool extend_backwards(gpusym_node_t *last, const gpusym_piece_t *p)
{
    const int64_t stride = last->count > 1 ? last->stride : p->off - last->disp;
    if (1 != p->rows || stride >= 0 || last->bytes != p->width || UINT32_MAX == last->count ||
        last->disp + (int64_t) last->count * stride != p->off) {
        return false;
    }
    last->stride = stride;
    last->count++;
    return true;
}

static int add_node(void *arg, const gpusym_piece_t *p)
{
    list_t *l = arg;
    if (p->rows > UINT32_MAX || p->width > UINT32_MAX) {
        return 1;
    }
    if (l->n > 0 && extend_backwards(&l->node[l->n - 1], p)) {
        return 0;
    }
    if (l->n == l->room) {
        const size_t room = 0 == l->room ? 64 : 2 * l->room;
        gpusym_node_t *more = room > GPUSYM_NODES_MAX ? NULL : realloc(l->node, room * sizeof *more);
        if (NULL == more) {
            return 1;
        }
        l->node = more;
        l->room = room;
    }
    l->node[l->n++] = (gpusym_node_t){.disp = p->off,
                                      .stride = p->rows > 1 ? (int64_t) p->pitch : 0,
                                      .count = (uint32_t) p->rows,
                                      .bytes = (uint32_t) p->width,
                                      .packed = p->at};
    return 0;
}

/* NULL: there are too many, or there is no memory. */
static gpusym_nodes_t *read_nodes(struct ompi_datatype_t *dtype)
{
    list_t l = {.node = NULL};
    gpusym_nodes_t *nodes = NULL;
    if (0 != gpusym_pieces_visit(1, dtype, 0, dtype->super.size, false, add_node, &l) || 0 == l.n ||
        GPUSYM_SUCCESS != gpusym_nodes_make(l.node, l.n, &nodes)) {
        GPUSYM_LOG(2, "datatype %s has no node list: copies or the host pack it", dtype->name);
        nodes = NULL;
    }
    free(l.node);
    return nodes;
}

/* ---- the lists ---- */

static void free_entries(entry_t *e)
{
    while (NULL != e) {
        entry_t *next = e->next;
        gpusym_nodes_free(e->nodes);
        free(e);
        e = next;
    }
}

/* Frees what freed datatypes had. Their operations have ended, so no kernel reads it. */
static void sweep(void)
{
    pthread_mutex_lock(&cache.lock);
    entry_t *dead = cache.dead;
    cache.dead = NULL;
    pthread_mutex_unlock(&cache.lock);
    free_entries(dead);
}

/* MPI calls this when the datatype is freed for good, in its destructor: GPU memory is not freed here. */
static int delete_entry(MPI_Datatype type, int key, void *attribute, void *state)
{
    entry_t *e = attribute, **link = &cache.living;
    (void) type;
    (void) key;
    (void) state;
    pthread_mutex_lock(&cache.lock);
    while (*link != e) {
        link = &(*link)->next;
    }
    *link = e->next;
    e->next = cache.dead;
    cache.dead = e;
    pthread_mutex_unlock(&cache.lock);
    return MPI_SUCCESS;
}

/* MPI calls this at the beginning of MPI_Finalize. */
static int close_cache(MPI_Comm comm, int key, void *attribute, void *state)
{
    (void) comm;
    (void) key;
    (void) attribute;
    (void) state;
    __atomic_store_n(&cache.closed, true, __ATOMIC_RELEASE);
    while (NULL != cache.living &&
           MPI_SUCCESS == ompi_attr_delete(TYPE_ATTR, cache.living->dtype, cache.living->dtype->d_keyhash,
                                           cache.type_key, false)) {
    }
    (void) ompi_attr_free_keyval(TYPE_ATTR, &cache.type_key, false);
    sweep();
    free_entries(cache.predefined);
    cache.predefined = NULL;
    return MPI_SUCCESS;
}

/* Makes the keys. With the lock held. */
static bool open_cache(void)
{
    const ompi_attribute_fn_ptr_union_t delete = {.attr_datatype_delete_fn = delete_entry};
    if (!cache.open && OMPI_MPI_STATE_INIT_COMPLETED == ompi_mpi_state &&
        gpusym_attribute_key(TYPE_ATTR, delete, &cache.type_key) &&
        gpusym_attribute_at_finalize(close_cache, &cache.self_key)) {
        __atomic_store_n(&cache.open, true, __ATOMIC_RELEASE);
    }
    return cache.open;
}

static entry_t *find_entry(struct ompi_datatype_t *dtype)
{
    void *attribute = NULL;
    int found = 0;
    if (ompi_datatype_is_predefined(dtype)) {
        entry_t *e = __atomic_load_n(&cache.predefined, __ATOMIC_ACQUIRE);
        while (NULL != e && e->dtype != dtype) {
            e = e->next;
        }
        return e;
    }
    (void) ompi_attr_get_c(dtype->d_keyhash, cache.type_key, &attribute, &found);
    GPUSYM_ACQUIRE(dtype); /* Open MPI's lock of attributes */
    return found ? attribute : NULL;
}

/* With the lock held. NULL: no memory. */
static entry_t *make_entry(struct ompi_datatype_t *dtype)
{
    entry_t *e = malloc(sizeof *e);
    if (NULL == e) {
        gpusym_log_no_memory("a datatype");
        return NULL;
    }
    *e = (entry_t){dtype, read_nodes(dtype), NULL};
    GPUSYM_RELEASE(dtype);
    if (ompi_datatype_is_predefined(dtype)) {
        e->next = cache.predefined;
        __atomic_store_n(&cache.predefined, e, __ATOMIC_RELEASE);
    } else if (MPI_SUCCESS == ompi_attr_set_c(TYPE_ATTR, dtype, &dtype->d_keyhash, cache.type_key, e, false)) {
        e->next = cache.living;
        cache.living = e;
    } else {
        free_entries(e);
        e = NULL;
    }
    return e;
}

gpusym_nodes_t *gpusym_nodes_of(struct ompi_datatype_t *dtype)
{
    entry_t *e = NULL;
    if (__atomic_load_n(&cache.closed, __ATOMIC_ACQUIRE)) {
        return NULL;
    }
    if (__atomic_load_n(&cache.open, __ATOMIC_ACQUIRE) && NULL != (e = find_entry(dtype))) {
        return e->nodes;
    }
    sweep();
    pthread_mutex_lock(&cache.lock);
    if (open_cache() && NULL == (e = find_entry(dtype))) {
        e = make_entry(dtype);
    }
    pthread_mutex_unlock(&cache.lock);
    return NULL != e ? e->nodes : NULL;
}
