/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The simulated GPU: fills the device table on a machine without one.
 *
 * Device memory is a memfd.  Where the program sees it, it is mapped PROT_NONE, so that a CPU that
 * touches a device pointer faults, as it must; a second, read-write mapping (the alias) is for
 * kernels and copies only.  Peers map each other's memfd.  A stream is a worker thread with a
 * queue; kernels are their CPU instantiations.  Faults can be injected by gpusym_sim_params.fail.
 *
 * Only this file and the kernels' simulator primitives (by gpusym_sim_mc_members) see an alias.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create, pthread_setname_np */
#endif

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/fd.h"
#include "mca/common/gpusym/sanitizers.h"

gpusym_sim_params_t gpusym_sim_params;

/* The faults that can be injected: an enumerator, and the word of gpusym_sim_params.fail. */
#define SIM_FAULTS(X)       \
    X(ALLOC, alloc)         \
    X(IMPORT, import)       \
    X(EXPORT, export)       \
    X(BIND, bind)           \
    X(LAUNCH, launch)       \
    X(GRAPH, graph)         \
    X(HOSTALLOC, hostalloc) \
    X(HANG, hang)           \
    X(DOORBELL, doorbell)

enum fault_kind {
#define X(id, word) FAULT_##id,
    SIM_FAULTS(X)
#undef X
        FAULT_KINDS
};

static const char *const fault_words[FAULT_KINDS] = {
#define X(id, word) #word,
    SIM_FAULTS(X)
#undef X
};

#define FAULTS_MAX 32

struct fault {
    enum fault_kind kind;
    unsigned long n; /* the n-th event of that kind, from 1 */
};

/* What a memfd is, in its first page (which no program sees) and in every handle to it. */
struct shared_id {
    char magic[8];     /* MAGIC_* */
    uint64_t size;     /* bytes after the first page */
    uint8_t nonce[16]; /* random: tells a descriptor of the wrong process from the right one */
};

#define MAGIC_MEMORY "gpusymM1"
#define MAGIC_VMM "gpusymV1" /* memory that peers fetch the descriptor of, as they must of a GPU's */
#define MAGIC_MULTICAST "gpusymC1"

/* What a gpusym_handle_t holds. */
struct sim_handle {
    struct shared_id id;
    int32_t pid; /* who has it open, */
    int32_t fd;  /* and as what */
    int32_t gpu; /* whose memory it is: its number */
};
_Static_assert(sizeof(struct sim_handle) <= sizeof(gpusym_handle_t), "a handle must hold ours");

enum region_kind { REGION_OWN, REGION_VMM, REGION_IMPORTED, REGION_HOST, REGION_MANAGED, REGION_MULTICAST };

/*
 * A piece of memory the simulator knows.  Freed when nobody pins it: the table does while the
 * memory is allocated, and so does queued work, so that freeing memory under running work is as
 * harmless as it is on a GPU, where a free waits for the work.
 */
struct region {
    enum region_kind kind;
    unsigned pins;   /* atomic */
    uint64_t number; /* of all regions of this process, from 1; none has it twice, over close and open too */
    char *base;      /* what the program sees */
    size_t size;
    char *alias;     /* the same for the CPU; base for host and managed memory, NULL for multicast */
    char *map;       /* what to unmap, NULL if nothing */
    size_t map_size; /* of map */
    int fd;          /* memfd of REGION_OWN and REGION_VMM, else -1 */
    struct shared_id id;
    gpusym_mc_t *mc; /* of REGION_MULTICAST; goes with it */
};

struct entry {
    uintptr_t start, end; /* [start, end) */
    struct region *region;
};

/* Regions by address, ascending. */
static struct {
    pthread_rwlock_t lock; /* covers the rest; held for a look-up or a change, never for a wait */
    struct entry *entry;
    size_t n, room;
} table = {.lock = PTHREAD_RWLOCK_INITIALIZER};

struct gpusym_gpu {
    gpusym_gpu_info_t info;
};

/* Flags of an item. */
#define FLAGS_MAX 8

/* Something queued: its pointers are translated, what they point into is pinned. */
struct item {
    enum { ITEM_KERNEL, ITEM_COPY, ITEM_COPY2D, ITEM_FLAGS, ITEM_NOTHING } what;
    unsigned kernel;
    gpusym_work_t work;
    void *dst;
    const void *src;
    size_t size; /* of a copy, or of a row of one */
    size_t dpitch, spitch, rows;
    gpusym_stream_flag_t flag[FLAGS_MAX];
    unsigned nflags;
    unsigned npins;
    struct region *pin[3 * GPUSYM_TEAM_MAX + 6]; /* peer, peer_in, peer_out; in, out, done, abort, mc, bell */
};

struct gpusym_stream {
    pthread_mutex_t lock; /* covers all but pending */
    pthread_cond_t more;  /* an item was queued, or quit was set */
    bool started, quit;   /* quit: atomic, for who waits for a flag */
    pthread_t worker;  /* if started */
    struct item *ring; /* the queue: n items from head on, modulo room */
    unsigned head, n, room;
    unsigned pending; /* atomic: items queued or running; the worker counts down after each */
    gpusym_stream_t *next;
};

/* In a memfd that all users of a multicast object map. */
struct mc_control {
    uint64_t size;
    uint32_t members;
    struct {
        uint32_t state; /* atomic, MEMBER_*; written by whoever binds that member, and never back */
        uint64_t offset;
        struct sim_handle memory; /* valid once state is MEMBER_BOUND */
    } member[GPUSYM_TEAM_MAX];
};
enum { MEMBER_FREE = 0, MEMBER_CLAIMED, MEMBER_BOUND };

struct gpusym_mc {
    struct region *region; /* the multicast pointers; in the table until mc_free */
    struct mc_control *control;
    unsigned members;                       /* as control says; final */
    int fd;                                 /* of the control memfd where it was made, else -1 */
    pthread_mutex_t lock;                   /* covers own and the making of member and alias */
    struct region *own[GPUSYM_TEAM_MAX];    /* bound through this object: pinned */
    struct region *member[GPUSYM_TEAM_MAX]; /* every member's memory, mapped here; not in the table */
    char *alias[GPUSYM_TEAM_MAX];           /* of the bound memory's start in them */
    bool complete;                          /* atomic: member and alias are there and final */
};

static struct {
    pthread_mutex_t lock; /* open and close, and streams */
    bool opened;          /* atomic */
    bool host;
    struct gpusym_gpu gpu;
    gpusym_stream_t *streams;
    uint64_t allocated; /* atomic, bytes of REGION_OWN and REGION_VMM */
    uint64_t peak;      /* atomic: the most that allocated has been since open */
    struct fault fault[FAULTS_MAX];
    unsigned nfaults;
    unsigned long events[FAULT_KINDS]; /* atomic: how many there were since open */
    char why[512];
} sim = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local char error_text[256] = "no error";

/* Notes what went wrong for sim_error() and returns code. */
__attribute__((format(printf, 2, 3))) static int fail(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error_text, sizeof(error_text), format, args);
    va_end(args);
    return code;
}

static const char *sim_error(void)
{
    return error_text;
}

static int check_gpu(const gpusym_gpu_t *gpu)
{
    if (!__atomic_load_n(&sim.opened, __ATOMIC_ACQUIRE)) {
        return fail(GPUSYM_ERR_NOT_AVAILABLE, "the simulator is not open");
    }
    if (&sim.gpu != gpu) {
        return fail(GPUSYM_ERR_BAD_PARAM, "not a GPU of the simulator");
    }
    return GPUSYM_SUCCESS;
}

/* ---- injected faults ---- */

/* Reads a number of decimal digits at *at and moves *at behind it; false if there is none. */
static bool number_parse(const char **at, unsigned long *number)
{
    size_t digits = strspn(*at, "0123456789");
    *number = strtoul(*at, NULL, 10);
    *at += digits;
    return 0 != digits;
}

/* The fault that the first `length` bytes of `word` name; FAULT_KINDS: none.  "bell" is the deprecated name of "doorbell". */
static enum fault_kind fault_find(const char *word, size_t length)
{
    for (unsigned kind = 0; kind < FAULT_KINDS; kind++) {
        if (strlen(fault_words[kind]) == length && 0 == memcmp(fault_words[kind], word, length)) {
            return kind;
        }
    }
    return 4 == length && 0 == memcmp("bell", word, length) ? FAULT_DOORBELL : FAULT_KINDS;
}

/* Parses one entry, "what:n[@rank]", that ends at end.  Returns false if it is malformed. */
static bool fault_parse(const char *part, const char *end)
{
    size_t word = strcspn(part, ":,");
    struct fault fault = {.kind = fault_find(part, word)};
    part += word;
    if (FAULT_KINDS == fault.kind || ':' != *part++ || !number_parse(&part, &fault.n) || 0 == fault.n) {
        return false;
    }
    bool ours = true;
    if ('@' == *part) {
        unsigned long rank;
        part++;
        if (!number_parse(&part, &rank)) {
            return false;
        }
        ours = gpusym_sim_params.world_rank >= 0 && rank == (unsigned long) gpusym_sim_params.world_rank;
    }
    if (part != end || FAULTS_MAX == sim.nfaults) {
        return false;
    }
    if (ours) {
        sim.fault[sim.nfaults++] = fault;
    }
    return true;
}

/* Reads gpusym_sim_params.fail; on a bad part, says so in sim.why. */
static int faults_parse(const char *spec)
{
    sim.nfaults = 0;
    memset(sim.events, 0, sizeof(sim.events));
    while (NULL != spec && '\0' != *spec) {
        const char *end = spec + strcspn(spec, ",");
        if (!fault_parse(spec, end)) {
            int used =
                snprintf(sim.why, sizeof(sim.why),
                         "faults to inject: \"%.*s\" is not what:n[@rank] with n from 1 (at most %d of them), where"
                         " what is one of",
                         (int) (end - spec < 64 ? end - spec : 64), spec, FAULTS_MAX);
            for (unsigned kind = 0; kind < FAULT_KINDS && used < (int) sizeof(sim.why); kind++) {
                used += snprintf(sim.why + used, sizeof(sim.why) - (size_t) used, " %s", fault_words[kind]);
            }
            return GPUSYM_ERR_BAD_PARAM;
        }
        spec = end + (',' == *end);
    }
    return GPUSYM_SUCCESS;
}

/* Counts an event; true, with the error noted, if it is to fail. */
static bool fault_due(enum fault_kind kind)
{
    unsigned long n = 1 + __atomic_fetch_add(&sim.events[kind], 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < sim.nfaults; i++) {
        if (kind == sim.fault[i].kind && n == sim.fault[i].n) {
            fail(GPUSYM_ERR, "injected fault %s:%lu", fault_words[kind], n);
            return true;
        }
    }
    return false;
}

/* ---- links between simulated GPUs ---- */

struct link {
    unsigned long a, b, class;
};

/* Reads one part of gpusym_sim_params.links, "a-b:class", and moves *at behind it and a comma; false if it is none. */
static bool link_parse(const char **at, struct link *link)
{
    const bool good = number_parse(at, &link->a) && '-' == *(*at)++ && number_parse(at, &link->b) && ':' == *(*at)++ &&
                      number_parse(at, &link->class) && link->class < GPUSYM_LINK_SELF && link->a != link->b;
    if (!good || ('\0' != **at && ',' != **at)) {
        return false;
    }
    *at += ',' == **at;
    return true;
}

/* Checks gpusym_sim_params.links; on a bad part, says so in sim.why. */
static int links_check(void)
{
    struct link link;
    const char *at = gpusym_sim_params.links;
    while (NULL != at && '\0' != *at) {
        const char *part = at;
        if (!link_parse(&at, &link)) {
            snprintf(sim.why, sizeof(sim.why),
                     "links: \"%.64s\" does not begin with A-B:CLASS, two GPUs and a class below %u", part,
                     GPUSYM_LINK_SELF);
            return GPUSYM_ERR_BAD_PARAM;
        }
    }
    return GPUSYM_SUCCESS;
}

/* The class of the link between our GPU and number `other`; the last part that names both counts. */
static int link_class(int32_t other)
{
    const unsigned long a = (unsigned long) sim.gpu.info.place.number, b = (unsigned long) other;
    unsigned long class = a == b ? GPUSYM_LINK_SELF : GPUSYM_LINK_NVLINK + 1;
    struct link link;
    const char *at = gpusym_sim_params.links;
    while (NULL != at && '\0' != *at && link_parse(&at, &link)) {
        if ((link.a == a && link.b == b) || (link.a == b && link.b == a)) {
            class = link.class;
        }
    }
    return (int) class;
}

/* ---- memfds that processes share: a page with the identity, then the contents ---- */

static size_t page_size(void)
{
    return (size_t) sysconf(_SC_PAGESIZE);
}

static size_t round_up(size_t size, size_t unit)
{
    return (size + unit - 1) / unit * unit;
}

static uint64_t shared_bytes(uint64_t size)
{
    return page_size() + round_up(size, page_size());
}

/* Makes a memfd for size zeroed bytes; only this user can open it, nobody can change its size. Fills id. */
static int shared_create(const char *magic, size_t size, struct shared_id *id, int *fd)
{
    ssize_t n;
    memset(id, 0, sizeof(*id));
    memcpy(id->magic, magic, sizeof(id->magic));
    id->size = size;
    *fd = -1;
    if (!gpusym_random(id->nonce, sizeof(id->nonce))) {
        return fail(GPUSYM_ERR, "getrandom: %s", strerror(errno));
    }
    if (GPUSYM_SUCCESS != gpusym_memfd_make("gpusym-device", shared_bytes(size), fd)) {
        return fail(GPUSYM_ERR_NO_MEMORY, "%zu bytes of a memfd: %s", size, strerror(errno));
    }
    GPUSYM_RESTART(n, pwrite(*fd, id, sizeof(*id), 0));
    if ((ssize_t) sizeof(*id) != n) {
        int rc = fail(GPUSYM_ERR_NO_MEMORY, "%zu bytes of a memfd: %s", size, strerror(errno));
        close(*fd);
        *fd = -1;
        return rc;
    }
    return GPUSYM_SUCCESS;
}

static bool is_vmm(const struct shared_id *id)
{
    return 0 == memcmp(id->magic, MAGIC_VMM, sizeof(id->magic));
}

/* Opens a memfd by the name that its process gives it. */
static int shared_open_path(const struct sim_handle *handle, int *fd)
{
    struct stat st;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int) handle->pid, (int) handle->fd);
    /* stat first: opening a pipe, terminal or device by mistake could have effects */
    if (0 != stat(path, &st)) {
        return fail(GPUSYM_ERR_UNREACHABLE, "%s: %s (another container or user, or it has ended)", path,
                    strerror(errno));
    }
    if (!S_ISREG(st.st_mode) || (uint64_t) st.st_size != shared_bytes(handle->id.size)) {
        return fail(GPUSYM_ERR_UNREACHABLE, "%s is not the peer's memory (another container?)", path);
    }
    GPUSYM_RESTART(*fd, open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    return *fd >= 0 ? GPUSYM_SUCCESS : fail(GPUSYM_ERR_UNREACHABLE, "%s: %s", path, strerror(errno));
}

/* Opens the memfd that a handle names and makes sure that it is that one: process and descriptor numbers may mean
 * another file here (other pid namespaces, an exporter that has ended). */
static int shared_open(const struct sim_handle *handle, int *fd)
{
    struct shared_id id;
    ssize_t n;
    int rc;

    if (is_vmm(&handle->id)) {
        rc = gpusym_fd_fetch(handle->pid, handle->fd, fd);
        if (GPUSYM_SUCCESS != rc) {
            fail(rc, "descriptor %d of process %d: %s", (int) handle->fd, (int) handle->pid, strerror(errno));
        }
    } else {
        rc = shared_open_path(handle, fd);
    }
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    GPUSYM_RESTART(n, pread(*fd, &id, sizeof(id), 0));
    if ((ssize_t) sizeof(id) != n || 0 != memcmp(&id, &handle->id, sizeof(id)) ||
        !gpusym_memfd_is_sealed(*fd, shared_bytes(id.size))) {
        close(*fd);
        *fd = -1;
        return fail(GPUSYM_ERR_UNREACHABLE, "descriptor %d of process %d is not the peer's memory (another container?)",
                    (int) handle->fd, (int) handle->pid);
    }
    return GPUSYM_SUCCESS;
}

static void handle_put(const struct shared_id *id, int fd, struct sim_handle *handle)
{
    memset(handle, 0, sizeof(*handle));
    handle->id = *id;
    handle->pid = (int32_t) getpid();
    handle->fd = fd;
    handle->gpu = sim.gpu.info.place.number;
}

/* The contents of a handle that came from outside; fails if it is not of that magic: of MAGIC_MEMORY, of any memory. */
static int handle_get(const gpusym_handle_t *from, const char *magic, struct sim_handle *handle)
{
    memcpy(handle, from->bytes, sizeof(*handle));
    const bool vmm = is_vmm(&handle->id) && 0 == strcmp(magic, MAGIC_MEMORY);
    if ((!vmm && 0 != memcmp(handle->id.magic, magic, sizeof(handle->id.magic))) || handle->pid <= 0 ||
        handle->fd < 0 || 0 == handle->id.size || handle->id.size > SIZE_MAX / 4) {
        return fail(GPUSYM_ERR_BAD_PARAM, "not a handle of the simulator for this use");
    }
    return GPUSYM_SUCCESS;
}

/* ---- regions ---- */

static struct region *region_new(enum region_kind kind, size_t size)
{
    struct region *region = calloc(1, sizeof(*region));
    if (NULL == region) {
        fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
        return NULL;
    }
    static uint64_t numbers; /* atomic */
    region->kind = kind;
    region->pins = 1;
    region->number = 1 + __atomic_fetch_add(&numbers, 1, __ATOMIC_RELAXED);
    region->size = size;
    region->fd = -1;
    return region;
}

/* Bytes between the region's end and its last page's. */
static size_t tail_size(const struct region *region)
{
    return round_up(region->size, page_size()) - region->size;
}

static void region_pin(struct region *region)
{
    __atomic_fetch_add(&region->pins, 1, __ATOMIC_RELAXED);
}

static void region_unpin(struct region *region);

/* Lets go of all that a multicast object holds, its region apart. */
static void mc_release(gpusym_mc_t *mc)
{
    for (unsigned i = 0; i < GPUSYM_TEAM_MAX; i++) {
        if (NULL != mc->own[i]) {
            region_unpin(mc->own[i]);
        }
        if (NULL != mc->member[i]) {
            region_unpin(mc->member[i]);
        }
    }
    if (NULL != mc->control) {
        munmap(mc->control, sizeof(*mc->control));
    }
    if (mc->fd >= 0) {
        close(mc->fd);
    }
    pthread_mutex_destroy(&mc->lock);
    free(mc);
}

static void region_unpin(struct region *region)
{
    if (1 != __atomic_fetch_sub(&region->pins, 1, __ATOMIC_ACQ_REL)) {
        return;
    }
    if (NULL != region->mc) {
        mc_release(region->mc);
    }
    if (REGION_HOST == region->kind || REGION_MANAGED == region->kind) {
        free(region->base);
    }
    if (REGION_OWN == region->kind || REGION_VMM == region->kind) {
        __atomic_fetch_sub(&sim.allocated, region->size, __ATOMIC_RELAXED);
    }
    if (NULL != region->map) {
        if (NULL != region->alias) {
            GPUSYM_UNPOISON(region->alias + region->size, tail_size(region));
        }
        munmap(region->map, region->map_size);
    }
    if (region->fd >= 0) {
        close(region->fd);
    }
    free(region);
}

/* Reserves addresses for a region: its pages, and if asked for as many again for the alias, each with an
 * inaccessible page behind it. */
static int region_reserve(struct region *region, bool alias)
{
    size_t half = round_up(region->size, page_size()) + page_size();
    size_t all = alias ? 2 * half : half;
    void *map = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (MAP_FAILED == map) {
        return fail(GPUSYM_ERR_NO_MEMORY, "mapping %zu bytes: %s", all, strerror(errno));
    }
    region->map = map;
    region->map_size = all;
    region->base = map;
    region->alias = alias ? region->map + half : NULL;
    return GPUSYM_SUCCESS;
}

/* Maps the contents of fd as device memory. Under ASan, what lies between the region's end and its last page's is
 * poisoned, so that a kernel that runs over the end is found. */
static int region_map(struct region *region, int fd)
{
    size_t page = page_size(), length = round_up(region->size, page);
    int rc = region_reserve(region, true);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (MAP_FAILED == mmap(region->base, length, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, (off_t) page) ||
        MAP_FAILED == mmap(region->alias, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t) page)) {
        return fail(GPUSYM_ERR_NO_MEMORY, "mapping %zu bytes: %s", region->size, strerror(errno));
    }
    GPUSYM_POISON(region->alias + region->size, tail_size(region));
    return GPUSYM_SUCCESS;
}

/* Maps a peer's memory; *out is pinned once, and in no table. */
static int region_import(const struct sim_handle *handle, struct region **out)
{
    int fd;
    int rc = shared_open(handle, &fd);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    struct region *region = region_new(REGION_IMPORTED, handle->id.size);
    rc = NULL == region ? GPUSYM_ERR_NO_MEMORY : region_map(region, fd);
    close(fd);
    if (GPUSYM_SUCCESS != rc) {
        if (NULL != region) {
            region_unpin(region);
        }
        return rc;
    }
    *out = region;
    return GPUSYM_SUCCESS;
}

/* ---- the table ---- */

/* The index of the first entry that starts after p. */
static size_t table_after(uintptr_t p)
{
    size_t low = 0, high = table.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table.entry[middle].start <= p) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The region that p lies in, or NULL; the caller holds the lock. */
static struct region *table_find(const void *p)
{
    size_t i = table_after((uintptr_t) p);
    return 0 != i && (uintptr_t) p < table.entry[i - 1].end ? table.entry[i - 1].region : NULL;
}

/* The same, pinned; the caller holds no lock. */
static struct region *table_pin(const void *p)
{
    pthread_rwlock_rdlock(&table.lock);
    struct region *region = table_find(p);
    if (NULL != region) {
        region_pin(region);
    }
    pthread_rwlock_unlock(&table.lock);
    return region;
}

/* Puts a region in; the table has its pin from now on. */
static int table_insert(struct region *region)
{
    int rc = GPUSYM_SUCCESS;
    pthread_rwlock_wrlock(&table.lock);
    if (table.n == table.room) {
        size_t room = 0 == table.room ? 64 : 2 * table.room;
        struct entry *entry = realloc(table.entry, room * sizeof(*entry));
        if (NULL == entry) {
            rc = fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
            goto unlock;
        }
        table.entry = entry;
        table.room = room;
    }
    uintptr_t start = (uintptr_t) region->base;
    size_t i = table_after(start);
    memmove(&table.entry[i + 1], &table.entry[i], (table.n - i) * sizeof(table.entry[0]));
    table.entry[i] = (struct entry){.start = start, .end = start + region->size, .region = region};
    table.n++;
unlock:
    pthread_rwlock_unlock(&table.lock);
    return rc;
}

/* Takes the region of that kind that starts at base out and lets go of it. */
static int table_remove(const void *base, enum region_kind kind)
{
    pthread_rwlock_wrlock(&table.lock);
    size_t i = table_after((uintptr_t) base);
    struct region *region = 0 == i ? NULL : table.entry[i - 1].region;
    if (NULL == region || region->base != base || region->kind != kind) {
        pthread_rwlock_unlock(&table.lock);
        return fail(GPUSYM_ERR_BAD_PARAM, "%p is not the start of memory that could be freed this way", base);
    }
    memmove(&table.entry[i - 1], &table.entry[i], (table.n - i) * sizeof(table.entry[0]));
    table.n--;
    pthread_rwlock_unlock(&table.lock);
    region_unpin(region);
    return GPUSYM_SUCCESS;
}

/* Takes everything out. */
static void table_clear(void)
{
    pthread_rwlock_wrlock(&table.lock);
    struct entry *entry = table.entry;
    size_t n = table.n;
    table.entry = NULL;
    table.n = table.room = 0;
    pthread_rwlock_unlock(&table.lock);
    for (size_t i = 0; i < n; i++) {
        region_unpin(entry[i].region);
    }
    free(entry);
}

/* How a pointer may be reached besides device, managed and pinned memory. */
#define REACH_HOST 1u      /* ordinary host memory is fine: a copy, not a kernel */
#define REACH_MULTICAST 2u /* multicast pointers are fine, and stay as they are: a kernel, not a copy */

/* *at: where the CPU finds the size bytes that p points to; *pin: what has to be let go of after use, or NULL. */
static int reach(const void *p, size_t size, unsigned how, void **at, struct region **pin)
{
    *pin = table_pin(p);
    *at = (void *) (uintptr_t) p;
    if (NULL == *pin) {
        if (NULL == p || 0 == (how & REACH_HOST)) {
            return fail(GPUSYM_ERR_BAD_PARAM, "%p is not memory that a GPU can reach", p);
        }
        return GPUSYM_SUCCESS;
    }
    size_t offset = (size_t) ((const char *) p - (*pin)->base);
    if (size > (*pin)->size - offset) {
        fail(GPUSYM_ERR_BAD_PARAM, "%zu bytes at %p reach past the end of their allocation (%zu are left)", size, p,
             (*pin)->size - offset);
        goto unpin;
    }
    if (NULL != (*pin)->alias) {
        *at = (*pin)->alias + offset;
    } else if (0 == (how & REACH_MULTICAST)) {
        fail(GPUSYM_ERR_BAD_PARAM, "%p is a multicast pointer, which only kernels can use", p);
        goto unpin;
    }
    return GPUSYM_SUCCESS;
unpin:
    region_unpin(*pin);
    *pin = NULL;
    return GPUSYM_ERR_BAD_PARAM;
}

/* For kernels that stay: their callers wait for them, so nothing is pinned. NULL: the kernel leaves, as it does when its time
 * runs out just then. */
static void *kernel_reach(const void *p)
{
    struct region *pin;
    void *at;
    if (fault_due(FAULT_DOORBELL)) {
        return NULL;
    }
    if (GPUSYM_SUCCESS != reach(p, 1, sim.host ? REACH_HOST : 0, &at, &pin)) {
        return NULL;
    }
    if (NULL != pin) {
        region_unpin(pin);
    }
    return at;
}

/* ---- open, close, GPU ---- */

/* The same number in every process of this host for the same text and seed (FNV-1a). */
static uint64_t hash(const char *text, uint64_t seed)
{
    uint64_t value = UINT64_C(14695981039346656037) ^ seed;
    for (; '\0' != *text; text++) {
        value = (value ^ (uint8_t) *text) * UINT64_C(1099511628211);
    }
    return value;
}

/* A text that only the processes of this host, since it was started, have in common. */
static void host_text(char *text, size_t size)
{
    struct utsname names;
    if (!gpusym_file_line("/proc/sys/kernel/random/boot_id", text, size)) { /* hidden in this container */
        snprintf(text, size, "%s", 0 == uname(&names) ? names.nodename : "");
    }
}

static int gpu_fill(gpusym_gpu_info_t *info)
{
    memset(info, 0, sizeof(*info));
    snprintf(info->name, sizeof(info->name), "simulated GPU");
    info->sm_count = 16;
    info->place.number = 0 == gpusym_sim_params.gpus ? gpusym_sim_params.local_rank
                                                     : gpusym_sim_params.local_rank % gpusym_sim_params.gpus;
    info->bytes = (uint64_t) sysconf(_SC_PHYS_PAGES) * page_size();
    if (0 == gpusym_sim_params.gpus) { /* one of our own */
        int32_t pid = (int32_t) getpid();
        snprintf(info->where, sizeof(info->where), "pid %d", (int) pid);
        memcpy(info->uuid, &pid, sizeof(pid));
        size_t rest = sizeof(info->uuid) - sizeof(pid);
        return gpusym_random(info->uuid + sizeof(pid), rest) ? GPUSYM_SUCCESS : GPUSYM_ERR;
    }
    char text[128];
    int number = info->place.number;
    snprintf(info->where, sizeof(info->where), "number %d of %d", number, gpusym_sim_params.gpus);
    host_text(text, sizeof(text));
    uint64_t half[2] = {hash(text, (uint64_t) number), hash(text, ~(uint64_t) number)};
    memcpy(info->uuid, half, sizeof(half));
    return GPUSYM_SUCCESS;
}

/* The parts of open; a failure is told in sim.why. */
static int open_locked(void)
{
    int rc = faults_parse(gpusym_sim_params.fail);
    if (GPUSYM_SUCCESS == rc) {
        rc = links_check();
    }
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (gpusym_sim_params.gpus < 0 || gpusym_sim_params.local_rank < 0) {
        snprintf(sim.why, sizeof(sim.why), "the simulator cannot have %d GPUs for local rank %d",
                 gpusym_sim_params.gpus, gpusym_sim_params.local_rank);
        return GPUSYM_ERR_BAD_PARAM;
    }
    int fd;
    if (GPUSYM_SUCCESS != gpusym_memfd_make("gpusym-device", page_size(), &fd)) {
        snprintf(sim.why, sizeof(sim.why), "the simulator needs memfd_create, which fails here: %s", strerror(errno));
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    close(fd);
    if (GPUSYM_SUCCESS != gpu_fill(&sim.gpu.info)) {
        snprintf(sim.why, sizeof(sim.why), "the simulator needs getrandom, which fails here: %s", strerror(errno));
        return GPUSYM_ERR_NOT_AVAILABLE;
    }
    sim.host = gpusym_sim_params.host;
    __atomic_store_n(&sim.peak, __atomic_load_n(&sim.allocated, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
    gpusym_kernel_sim_mc_members = gpusym_sim_mc_members;
    gpusym_kernel_sim_reach = kernel_reach;
    return GPUSYM_SUCCESS;
}

static int sim_open(const char **why)
{
    int rc = GPUSYM_SUCCESS;
    pthread_mutex_lock(&sim.lock);
    if (!sim.opened) {
        rc = open_locked();
        if (GPUSYM_SUCCESS == rc) {
            __atomic_store_n(&sim.opened, true, __ATOMIC_RELEASE);
        } else if (NULL != why) {
            *why = sim.why;
        }
    }
    pthread_mutex_unlock(&sim.lock);
    return rc;
}

static void stream_end(gpusym_stream_t *stream);

static void sim_close(void)
{
    pthread_mutex_lock(&sim.lock);
    __atomic_store_n(&sim.opened, false, __ATOMIC_RELEASE);
    gpusym_stream_t *stream = sim.streams;
    sim.streams = NULL;
    pthread_mutex_unlock(&sim.lock);
    while (NULL != stream) {
        gpusym_stream_t *next = stream->next;
        stream_end(stream);
        stream = next;
    }
    table_clear();
}

static void sim_query(const void *p, gpusym_mem_t *mem)
{
    static const gpusym_mem_kind_t kinds[] = {
        [REGION_OWN] = GPUSYM_MEM_DEVICE,      [REGION_VMM] = GPUSYM_MEM_DEVICE,
        [REGION_IMPORTED] = GPUSYM_MEM_DEVICE, [REGION_HOST] = GPUSYM_MEM_REGISTERED,
        [REGION_MANAGED] = GPUSYM_MEM_MANAGED, [REGION_MULTICAST] = GPUSYM_MEM_DEVICE,
    };
    *mem = (gpusym_mem_t){.kind = GPUSYM_MEM_HOST, .gpu = -1, .context = NULL};
    if (NULL == p || !__atomic_load_n(&sim.opened, __ATOMIC_ACQUIRE)) {
        return;
    }
    if (sim.host) {
        mem->kind = GPUSYM_MEM_DEVICE;
        mem->gpu = 0;
        return;
    }
    pthread_rwlock_rdlock(&table.lock);
    const struct region *region = table_find(p);
    if (NULL != region) {
        mem->kind = kinds[region->kind];
        mem->gpu = 0;
        mem->id = REGION_OWN == region->kind ? region->number : 0;
    }
    pthread_rwlock_unlock(&table.lock);
}

/* Under sim_params.host, memory that is not the simulator's is device memory, but in no allocation that is known. */
static int sim_mem_range(const void *p, gpusym_range_t *range)
{
    pthread_rwlock_rdlock(&table.lock);
    const struct region *region = table_find(p);
    if (NULL != region) {
        *range = (gpusym_range_t){.base = region->base,
                                  .size = region->size,
                                  .id = region->number,
                                  .shareable = REGION_OWN == region->kind || REGION_VMM == region->kind};
    }
    pthread_rwlock_unlock(&table.lock);
    return NULL != region ? GPUSYM_SUCCESS
                          : fail(GPUSYM_ERR_NOT_AVAILABLE, "%p lies in no allocation that the simulator knows", p);
}

static int sim_gpu_open(const gpusym_mem_t *mem, gpusym_gpu_t **gpu)
{
    int rc = check_gpu(&sim.gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (NULL != mem && mem->gpu > 0) {
        return fail(GPUSYM_ERR_BAD_PARAM, "the simulator gives a process one GPU: there is no number %d", mem->gpu);
    }
    *gpu = &sim.gpu;
    return GPUSYM_SUCCESS;
}

static void sim_gpu_info(gpusym_gpu_t *gpu, gpusym_gpu_info_t *info)
{
    *info = gpu->info;
}

static int sim_gpu_link(gpusym_gpu_t *gpu, const gpusym_place_t *peer)
{
    (void) gpu;
    return peer->number < 0 ? GPUSYM_ERR_NOT_AVAILABLE : link_class(peer->number);
}

/* ---- memory ---- */

/* Counts size bytes as allocated; false if the GPU has not so many left. */
static bool account(size_t size)
{
    if (size > sim.gpu.info.bytes) {
        return false;
    }
    const uint64_t now = size + __atomic_fetch_add(&sim.allocated, size, __ATOMIC_RELAXED);
    if (now > sim.gpu.info.bytes) {
        __atomic_fetch_sub(&sim.allocated, size, __ATOMIC_RELAXED);
        return false;
    }
    uint64_t peak = __atomic_load_n(&sim.peak, __ATOMIC_RELAXED);
    while (peak < now &&
           !__atomic_compare_exchange_n(&sim.peak, &peak, now, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return true;
}

void gpusym_sim_bytes(uint64_t *now, uint64_t *peak)
{
    if (NULL != now) {
        *now = __atomic_load_n(&sim.allocated, __ATOMIC_RELAXED);
    }
    if (NULL != peak) {
        *peak = __atomic_load_n(&sim.peak, __ATOMIC_RELAXED);
    }
}

/* Memory of the GPU, REGION_OWN or REGION_VMM. */
static int memory_new(gpusym_gpu_t *gpu, enum region_kind kind, size_t size, void **p)
{
    int rc = check_gpu(gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (0 == size) {
        return fail(GPUSYM_ERR_BAD_PARAM, "an allocation of 0 bytes");
    }
    if (fault_due(FAULT_ALLOC)) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    if (!account(size)) {
        return fail(GPUSYM_ERR_NO_MEMORY, "the simulated GPU has no %zu bytes left", size);
    }
    struct region *region = region_new(kind, size);
    if (NULL == region) {
        __atomic_fetch_sub(&sim.allocated, size, __ATOMIC_RELAXED);
        return GPUSYM_ERR_NO_MEMORY;
    }
    rc = shared_create(REGION_VMM == kind ? MAGIC_VMM : MAGIC_MEMORY, size, &region->id, &region->fd);
    if (GPUSYM_SUCCESS == rc) {
        rc = region_map(region, region->fd);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = table_insert(region);
    }
    if (GPUSYM_SUCCESS != rc) {
        region_unpin(region);
        return rc;
    }
    *p = region->base;
    return GPUSYM_SUCCESS;
}

static int sim_mem_alloc(gpusym_gpu_t *gpu, size_t size, void **p)
{
    return memory_new(gpu, REGION_OWN, size, p);
}

static int sim_mem_free(gpusym_gpu_t *gpu, void *p)
{
    int rc = check_gpu(gpu);
    return GPUSYM_SUCCESS != rc ? rc : table_remove(p, REGION_OWN);
}

static int sim_mem_zero(gpusym_gpu_t *gpu, void *p, size_t size)
{
    void *at;
    struct region *pin;
    int rc = check_gpu(gpu);
    if (GPUSYM_SUCCESS != rc || 0 == size) {
        return rc;
    }
    rc = reach(p, size, sim.host ? REACH_HOST : 0, &at, &pin);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    memset(at, 0, size);
    if (NULL != pin) {
        region_unpin(pin);
    }
    return GPUSYM_SUCCESS;
}

/* What peers open: of REGION_VMM a descriptor for them alone, so that they can while the program frees the memory. */
static int exported_fd(const struct region *region, int *fd)
{
    *fd = region->fd;
    if (REGION_VMM == region->kind) {
        GPUSYM_RESTART(*fd, fcntl(region->fd, F_DUPFD_CLOEXEC, 0));
        if (*fd < 0 || GPUSYM_SUCCESS != gpusym_fd_share(*fd)) {
            int rc = fail(GPUSYM_ERR_UNREACHABLE, "a descriptor for peers: %s", strerror(errno));
            if (*fd >= 0) {
                close(*fd);
            }
            return rc;
        }
    }
    return GPUSYM_SUCCESS;
}

static int sim_mem_export(gpusym_gpu_t *gpu, void *p, gpusym_handle_t *handle)
{
    struct sim_handle ours;
    int fd = -1, rc = check_gpu(gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (fault_due(FAULT_EXPORT)) {
        return GPUSYM_ERR;
    }
    struct region *region = table_pin(p);
    if (NULL != region && (REGION_OWN == region->kind || REGION_VMM == region->kind) && p == region->base) {
        rc = exported_fd(region, &fd);
    } else {
        rc = fail(GPUSYM_ERR_BAD_PARAM, "%p is not the start of an allocation of this GPU", p);
    }
    if (GPUSYM_SUCCESS == rc) {
        handle_put(&region->id, fd, &ours);
        memset(handle, 0, sizeof(*handle));
        memcpy(handle->bytes, &ours, sizeof(ours));
    }
    if (NULL != region) {
        region_unpin(region);
    }
    return rc;
}

static int sim_mem_unexport(gpusym_gpu_t *gpu, const gpusym_handle_t *handle)
{
    struct sim_handle ours;
    int rc = check_gpu(gpu);
    if (GPUSYM_SUCCESS == rc) {
        rc = handle_get(handle, MAGIC_MEMORY, &ours);
    }
    if (GPUSYM_SUCCESS == rc && is_vmm(&ours.id) && 0 != close(ours.fd) && EINTR != errno) { /* closed then too */
        rc = fail(GPUSYM_ERR_BAD_PARAM, "descriptor %d for peers: %s", (int) ours.fd, strerror(errno));
    }
    return rc;
}

static int sim_mem_import(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, void **p)
{
    struct sim_handle ours;
    struct region *region;
    int rc = check_gpu(gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (fault_due(FAULT_IMPORT)) {
        return GPUSYM_ERR_UNREACHABLE;
    }
    rc = handle_get(handle, MAGIC_MEMORY, &ours);
    if (GPUSYM_SUCCESS == rc && GPUSYM_LINK_NONE == link_class(ours.gpu)) {
        rc = fail(GPUSYM_ERR_UNREACHABLE, "simulated GPU %d does not reach GPU %d", (int) sim.gpu.info.place.number,
                  (int) ours.gpu);
    }
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = region_import(&ours, &region);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    rc = table_insert(region);
    if (GPUSYM_SUCCESS != rc) {
        region_unpin(region);
        return rc;
    }
    *p = region->base;
    return GPUSYM_SUCCESS;
}

static int sim_mem_unimport(gpusym_gpu_t *gpu, void *p)
{
    int rc = check_gpu(gpu);
    return GPUSYM_SUCCESS != rc ? rc : table_remove(p, REGION_IMPORTED);
}

/* Zeroed memory that both CPU and kernels reach. From the heap, so that ASan watches its ends. */
static int host_new(enum region_kind kind, size_t size, void **p)
{
    void *memory = NULL;
    if (0 == size) {
        return fail(GPUSYM_ERR_BAD_PARAM, "an allocation of 0 bytes");
    }
    struct region *region = region_new(kind, size);
    if (NULL == region) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    int rc;
    if (size > sim.gpu.info.bytes || 0 != posix_memalign(&memory, 256, size)) {
        rc = fail(GPUSYM_ERR_NO_MEMORY, "no %zu bytes of host memory", size);
    } else {
        memset(memory, 0, size);
        region->base = region->alias = memory;
        rc = table_insert(region);
    }
    if (GPUSYM_SUCCESS != rc) {
        region_unpin(region);
        return rc;
    }
    *p = memory;
    return GPUSYM_SUCCESS;
}

static int sim_host_alloc(gpusym_gpu_t *gpu, size_t size, void **host, void **dev)
{
    int rc = check_gpu(gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (fault_due(FAULT_HOSTALLOC)) {
        return GPUSYM_ERR_NO_MEMORY;
    }
    rc = host_new(REGION_HOST, size, host);
    if (GPUSYM_SUCCESS == rc) {
        *dev = *host;
    }
    return rc;
}

static int sim_host_free(gpusym_gpu_t *gpu, void *host)
{
    int rc = check_gpu(gpu);
    return GPUSYM_SUCCESS != rc ? rc : table_remove(host, REGION_HOST);
}

int gpusym_sim_vmm_alloc(size_t size, void **p)
{
    return memory_new(&sim.gpu, REGION_VMM, size, p);
}

int gpusym_sim_vmm_free(void *p)
{
    int rc = check_gpu(&sim.gpu);
    return GPUSYM_SUCCESS != rc ? rc : table_remove(p, REGION_VMM);
}

int gpusym_sim_managed_alloc(size_t size, void **p)
{
    int rc = check_gpu(&sim.gpu);
    return GPUSYM_SUCCESS != rc ? rc : host_new(REGION_MANAGED, size, p);
}

int gpusym_sim_managed_free(void *p)
{
    int rc = check_gpu(&sim.gpu);
    return GPUSYM_SUCCESS != rc ? rc : table_remove(p, REGION_MANAGED);
}

/* ---- work: translated and pinned when it is queued, run by a stream's worker ---- */

static void item_unpin(struct item *item)
{
    for (unsigned i = 0; i < item->npins; i++) {
        region_unpin(item->pin[i]);
    }
    item->npins = 0;
}

/* reach(), with the pin kept in the item. */
static int item_reach(struct item *item, const void *p, size_t size, unsigned how, void **at)
{
    struct region *pin;
    int rc = reach(p, size, how, at, &pin);
    if (NULL != pin) {
        item->pin[item->npins++] = pin;
    }
    return rc;
}

/* A wait ends with its stream too: what it waits for may never come once a peer has failed. */
static void flags_run(const struct item *item, const bool *quit)
{
    static const struct timespec nap = {0, 20000};
    for (unsigned i = 0; i < item->nflags; i++) {
        const gpusym_stream_flag_t *f = &item->flag[i];
        if (!f->wait) {
            __atomic_store_n(f->at, f->value, __ATOMIC_RELEASE);
            continue;
        }
        /* who writes it: the caller of stream_flags knows */
        for (unsigned turn = 0; (int32_t) (__atomic_load_n(f->at, __ATOMIC_ACQUIRE) - f->value) < 0 &&
                                !__atomic_load_n(quit, __ATOMIC_RELAXED);
             turn++) {
            if (turn < 16) {
                sched_yield();
            } else {
                nanosleep(&nap, NULL);
            }
        }
    }
}

static void item_run(const struct item *item, const bool *quit)
{
    switch (item->what) {
    case ITEM_KERNEL:
        for (uint32_t block = 0; block < item->work.nblocks; block++) {
            gpusym_kernel_sim(item->kernel, &item->work, block);
        }
        break;
    case ITEM_COPY:
        memmove(item->dst, item->src, item->size);
        break;
    case ITEM_COPY2D:
        for (size_t row = 0; row < item->rows; row++) {
            memcpy((char *) item->dst + row * item->dpitch, (const char *) item->src + row * item->spitch, item->size);
        }
        break;
    case ITEM_FLAGS:
        flags_run(item, quit);
        break;
    case ITEM_NOTHING: /* an injected hang: its completion word stays as it is */
        break;
    }
}

static int copy_prepare(struct item *item, void *dst, const void *src, size_t size)
{
    void *from = NULL;
    int rc = item_reach(item, dst, size, REACH_HOST, &item->dst);
    if (GPUSYM_SUCCESS == rc) {
        rc = item_reach(item, src, size, REACH_HOST, &from);
    }
    if (GPUSYM_SUCCESS != rc) {
        item_unpin(item);
        return rc;
    }
    item->what = ITEM_COPY;
    item->src = from;
    item->size = size;
    return GPUSYM_SUCCESS;
}

/* Bytes from the first to the end of the last of `rows` rows; false if 64 bits do not count them. */
static bool rows_extent(size_t width, size_t pitch, size_t rows, size_t *size)
{
    return !__builtin_mul_overflow(pitch, rows - 1, size) && !__builtin_add_overflow(*size, width, size);
}

static int copy2d_prepare(struct item *item, void *dst, const void *src)
{
    const unsigned how = sim.host ? REACH_HOST : 0;
    size_t dsize, ssize;
    void *from = NULL;
    if (!rows_extent(item->size, item->dpitch, item->rows, &dsize) ||
        !rows_extent(item->size, item->spitch, item->rows, &ssize) ||
        (item->rows > 1 && (item->dpitch < item->size || item->spitch < item->size))) {
        return fail(GPUSYM_ERR_BAD_PARAM, "%zu rows of %zu bytes cannot be %zu and %zu bytes apart", item->rows,
                    item->size, item->dpitch, item->spitch);
    }
    int rc = item_reach(item, dst, dsize, how, &item->dst);
    if (GPUSYM_SUCCESS == rc) {
        rc = item_reach(item, src, ssize, how, &from);
    }
    if (GPUSYM_SUCCESS != rc) {
        item_unpin(item);
        return rc;
    }
    item->what = ITEM_COPY2D;
    item->src = from;
    return GPUSYM_SUCCESS;
}

/* Translates one pointer of a descriptor; NULL stays NULL. */
static int work_reach(struct item *item, const void *p, size_t size, void **at)
{
    *at = NULL;
    return NULL == p ? GPUSYM_SUCCESS : item_reach(item, p, size, REACH_MULTICAST | (sim.host ? REACH_HOST : 0), at);
}

/* The same of a pointer to what is not written. */
static int work_reach_const(struct item *item, const void *p, const void **at)
{
    void *there;
    int rc = work_reach(item, p, 1, &there);
    *at = there;
    return rc;
}

/* Translates the pointers that a descriptor has one of for every rank. */
static int work_prepare_peers(struct item *item, const gpusym_work_t *w)
{
    int rc = GPUSYM_SUCCESS;
    for (uint32_t r = 0; r < w->nranks && GPUSYM_SUCCESS == rc; r++) {
        rc = work_reach(item, w->peer[r], 1, &item->work.peer[r]);
        if (GPUSYM_SUCCESS == rc) {
            rc = work_reach_const(item, w->peer_in[r], &item->work.peer_in[r]);
        }
        if (GPUSYM_SUCCESS == rc) {
            rc = work_reach(item, w->peer_out[r], 1, &item->work.peer_out[r]);
        }
    }
    return rc;
}

static int work_prepare(struct item *item, const gpusym_work_t *w)
{
    void *done = NULL, *stop = NULL, *bell = NULL;
    item->work = *w;
    int rc = work_prepare_peers(item, w);
    if (GPUSYM_SUCCESS == rc) {
        rc = work_reach(item, w->out, 1, &item->work.out);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = work_reach_const(item, w->in, &item->work.in);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = work_reach(item, w->mc, 1, &item->work.mc); /* stays a multicast pointer, which is pinned */
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = work_reach(item, w->done, sizeof(*w->done), &done);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = work_reach(item, w->abort, sizeof(*w->abort), &stop);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = work_reach(item, w->bell, 2 * sizeof(*w->bell), &bell);
    }
    if (GPUSYM_SUCCESS != rc) {
        item_unpin(item);
        return rc;
    }
    item->work.bell = bell;
    item->work.done = done;
    item->work.abort = stop;
    return GPUSYM_SUCCESS;
}

static int sim_copy(gpusym_gpu_t *gpu, void *dst, const void *src, size_t size)
{
    struct item item = {.npins = 0};
    int rc = check_gpu(gpu);
    if (GPUSYM_SUCCESS != rc || 0 == size) {
        return rc;
    }
    rc = copy_prepare(&item, dst, src, size);
    if (GPUSYM_SUCCESS == rc) {
        item_run(&item, NULL);
        item_unpin(&item);
    }
    return rc;
}

/* ---- streams ---- */

static void *stream_work(void *arg)
{
    gpusym_stream_t *stream = arg;
    struct item item;

    pthread_setname_np(pthread_self(), "gpusym-sim");
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        /* for stream_push or stream_end, of whichever thread */
        while (0 == stream->n && !stream->quit) {
            pthread_cond_wait(&stream->more, &stream->lock);
        }
        if (0 == stream->n) {
            break;
        }
        item = stream->ring[stream->head];
        stream->head = (stream->head + 1) % stream->room;
        stream->n--;
        pthread_mutex_unlock(&stream->lock);
        item_run(&item, &stream->quit);
        item_unpin(&item);
        __atomic_fetch_sub(&stream->pending, 1, __ATOMIC_RELEASE);
        pthread_mutex_lock(&stream->lock);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

/* Starts the worker, deaf to all signals but those of its own faults: a program's handlers run in its own threads. */
static int stream_start(gpusym_stream_t *stream)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    sigset_t blocked, saved;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        sigdelset(&blocked, faults[i]);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &saved);
    int err = pthread_create(&stream->worker, NULL, stream_work, stream);
    pthread_sigmask(SIG_SETMASK, &saved, NULL);
    if (0 != err) {
        return fail(GPUSYM_ERR_NO_MEMORY, "pthread_create: %s", strerror(err));
    }
    stream->started = true;
    return GPUSYM_SUCCESS;
}

/* Makes room for one more item; the caller holds the lock. */
static int stream_room(gpusym_stream_t *stream)
{
    if (stream->n < stream->room) {
        return GPUSYM_SUCCESS;
    }
    unsigned room = 0 == stream->room ? 16 : 2 * stream->room;
    struct item *ring = malloc(room * sizeof(*ring));
    if (NULL == ring) {
        return fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
    }
    for (unsigned i = 0; i < stream->n; i++) {
        ring[i] = stream->ring[(stream->head + i) % stream->room];
    }
    free(stream->ring);
    stream->ring = ring;
    stream->room = room;
    stream->head = 0;
    return GPUSYM_SUCCESS;
}

/* Queues an item, whose pins the stream lets go of, even if it cannot queue it. */
static int stream_push(gpusym_stream_t *stream, struct item *item)
{
    pthread_mutex_lock(&stream->lock);
    int rc = stream_room(stream);
    if (GPUSYM_SUCCESS == rc && !stream->started) {
        rc = stream_start(stream);
    }
    if (GPUSYM_SUCCESS == rc) {
        stream->ring[(stream->head + stream->n) % stream->room] = *item;
        stream->n++;
        __atomic_fetch_add(&stream->pending, 1, __ATOMIC_RELAXED);
        pthread_cond_signal(&stream->more);
    }
    pthread_mutex_unlock(&stream->lock);
    if (GPUSYM_SUCCESS != rc) {
        item_unpin(item);
    }
    return rc;
}

/* Frees a stream that is in no list, once its queue is empty. */
static void stream_end(gpusym_stream_t *stream)
{
    pthread_mutex_lock(&stream->lock);
    __atomic_store_n(&stream->quit, true, __ATOMIC_RELAXED);
    pthread_cond_signal(&stream->more);
    pthread_mutex_unlock(&stream->lock);
    if (stream->started) {
        pthread_join(stream->worker, NULL);
    }
    pthread_cond_destroy(&stream->more);
    pthread_mutex_destroy(&stream->lock);
    free(stream->ring);
    free(stream);
}

static int sim_stream_create(gpusym_gpu_t *gpu, gpusym_stream_t **out)
{
    int rc = check_gpu(gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    gpusym_stream_t *stream = calloc(1, sizeof(*stream));
    if (NULL == stream) {
        return fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
    }
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->more, NULL);
    pthread_mutex_lock(&sim.lock);
    stream->next = sim.streams;
    sim.streams = stream;
    pthread_mutex_unlock(&sim.lock);
    *out = stream;
    return GPUSYM_SUCCESS;
}

static void sim_stream_destroy(gpusym_stream_t *stream)
{
    pthread_mutex_lock(&sim.lock);
    gpusym_stream_t **link = &sim.streams;
    while (NULL != *link && stream != *link) {
        link = &(*link)->next;
    }
    bool ours = NULL != *link;
    if (ours) {
        *link = stream->next;
    }
    pthread_mutex_unlock(&sim.lock);
    if (ours) {
        stream_end(stream);
    }
}

static int sim_stream_poll(gpusym_stream_t *stream)
{
    return 0 == __atomic_load_n(&stream->pending, __ATOMIC_ACQUIRE);
}

static bool sim_gpu_alive(gpusym_gpu_t *gpu)
{
    return GPUSYM_SUCCESS == check_gpu(gpu);
}

static int sim_kernels_load(gpusym_gpu_t *gpu, const char **why)
{
    int rc = check_gpu(gpu);
    if (GPUSYM_SUCCESS != rc && NULL != why) {
        *why = "the simulator is not open";
    }
    return rc;
}

static int sim_launch(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    if (kernel >= GPUSYM_K_COUNT || 0 == w->nranks || w->nranks > GPUSYM_TEAM_MAX || 0 == w->nblocks ||
        w->nblocks > GPUSYM_BLOCKS_MAX || 0 == w->nthreads || w->nthreads > GPUSYM_THREADS_MAX) {
        return fail(GPUSYM_ERR_BAD_PARAM, "kernel %u cannot be launched for %u ranks with %u blocks of %u threads",
                    kernel, (unsigned) w->nranks, (unsigned) w->nblocks, (unsigned) w->nthreads);
    }
    bool hang = fault_due(FAULT_HANG);
    if (fault_due(FAULT_LAUNCH)) {
        return GPUSYM_ERR;
    }
    struct item item = {.what = hang ? ITEM_NOTHING : ITEM_KERNEL, .kernel = kernel, .npins = 0};
    int rc = work_prepare(&item, w);
    return GPUSYM_SUCCESS != rc ? rc : stream_push(stream, &item);
}

/* The last launch made by it, from which the next may differ. */
struct gpusym_graph {
    unsigned kernel;
    gpusym_work_t work;
};

static int sim_graph_launch(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    if (NULL == *graph) {
        if (fault_due(FAULT_GRAPH)) {
            return GPUSYM_ERR;
        }
        *graph = malloc(sizeof(**graph));
        if (NULL == *graph) {
            return fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
        }
    }
    **graph = (struct gpusym_graph){.kernel = kernel, .work = *w};
    return sim_launch(stream, (*graph)->kernel, &(*graph)->work);
}

static void sim_graph_destroy(gpusym_graph_t *graph)
{
    free(graph);
}

static int sim_copy_async(gpusym_stream_t *stream, void *dst, const void *src, size_t size)
{
    if (0 == size) {
        return GPUSYM_SUCCESS;
    }
    struct item item = {.npins = 0};
    int rc = copy_prepare(&item, dst, src, size);
    return GPUSYM_SUCCESS != rc ? rc : stream_push(stream, &item);
}

static int sim_stream_flags(gpusym_stream_t *stream, const gpusym_stream_flag_t *flags, unsigned n)
{
    while (n > 0) {
        struct item item = {.what = ITEM_FLAGS, .npins = 0};
        int rc = GPUSYM_SUCCESS;
        for (; n > 0 && item.nflags < FLAGS_MAX && GPUSYM_SUCCESS == rc; n--, flags++, item.nflags++) {
            void *at = NULL;
            rc = item_reach(&item, flags->at, sizeof(*flags->at), 0, &at);
            item.flag[item.nflags] = (gpusym_stream_flag_t){flags->wait, at, flags->value};
        }
        if (GPUSYM_SUCCESS != rc) {
            item_unpin(&item);
            return rc;
        }
        rc = stream_push(stream, &item);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
    }
    return GPUSYM_SUCCESS;
}

static int sim_copy2d_async(gpusym_stream_t *stream, void *dst, size_t dpitch, const void *src, size_t spitch,
                            size_t width, size_t height)
{
    if (0 == width || 0 == height) {
        return GPUSYM_SUCCESS;
    }
    struct item item = {.npins = 0, .size = width, .dpitch = dpitch, .spitch = spitch, .rows = height};
    int rc = copy2d_prepare(&item, dst, src);
    return GPUSYM_SUCCESS != rc ? rc : stream_push(stream, &item);
}

/* ---- multicast: addresses with nothing behind them, and a list of the members' memory ---- */

/* Makes an object around the control memfd fd, which it only maps; keep: it also takes fd over. */
static int mc_make(int fd, bool keep, unsigned members, size_t size, gpusym_mc_t **out)
{
    struct region *region = region_new(REGION_MULTICAST, size);
    gpusym_mc_t *mc = calloc(1, sizeof(*mc));
    if (NULL == region || NULL == mc) {
        free(region);
        free(mc);
        return fail(GPUSYM_ERR_NO_MEMORY, "out of memory");
    }
    pthread_mutex_init(&mc->lock, NULL);
    mc->region = region;
    mc->members = members;
    mc->fd = -1;
    region->mc = mc;
    int rc = region_reserve(region, false);
    if (GPUSYM_SUCCESS == rc) {
        void *control = mmap(NULL, sizeof(*mc->control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t) page_size());
        mc->control = MAP_FAILED == control ? NULL : control;
        rc = MAP_FAILED == control ? fail(GPUSYM_ERR_NO_MEMORY, "mmap: %s", strerror(errno)) : table_insert(region);
    }
    if (GPUSYM_SUCCESS != rc) {
        region_unpin(region); /* and mc with it */
        return rc;
    }
    mc->fd = keep ? fd : -1;
    *out = mc;
    return GPUSYM_SUCCESS;
}

static int sim_mc_create(gpusym_gpu_t *gpu, unsigned members, size_t size, gpusym_mc_t **out, gpusym_handle_t *handle)
{
    struct shared_id id;
    struct sim_handle ours;
    int fd;
    int rc = check_gpu(gpu);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    if (0 == members || members > GPUSYM_TEAM_MAX || 0 == size || size > sim.gpu.info.bytes) {
        return fail(GPUSYM_ERR_BAD_PARAM, "no multicast object for %u members of %zu bytes", members, size);
    }
    rc = shared_create(MAGIC_MULTICAST, sizeof(struct mc_control), &id, &fd);
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    gpusym_mc_t *mc;
    rc = mc_make(fd, true, members, size, &mc);
    if (GPUSYM_SUCCESS != rc) {
        close(fd);
        return rc;
    }
    mc->control->size = size;
    mc->control->members = members;
    handle_put(&id, fd, &ours);
    memset(handle, 0, sizeof(*handle));
    memcpy(handle->bytes, &ours, sizeof(ours));
    *out = mc;
    return GPUSYM_SUCCESS;
}

static int sim_mc_import(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, gpusym_mc_t **out)
{
    struct sim_handle ours;
    struct mc_control control;
    int fd;
    int rc = check_gpu(gpu);
    if (GPUSYM_SUCCESS == rc) {
        rc = handle_get(handle, MAGIC_MULTICAST, &ours);
    }
    if (GPUSYM_SUCCESS == rc) {
        rc = shared_open(&ours, &fd);
    }
    if (GPUSYM_SUCCESS != rc) {
        return rc;
    }
    ssize_t n;
    GPUSYM_RESTART(n, pread(fd, &control, sizeof(control), (off_t) page_size()));
    if ((ssize_t) sizeof(control) != n || 0 == control.members || control.members > GPUSYM_TEAM_MAX ||
        0 == control.size || control.size > SIZE_MAX / 4) {
        rc = fail(GPUSYM_ERR_UNREACHABLE, "the multicast object cannot be read");
    } else {
        rc = mc_make(fd, false, control.members, control.size, out);
    }
    close(fd);
    return rc;
}

/* Writes that member's memory into the control memfd, for all to see. */
static int mc_publish(gpusym_mc_t *mc, unsigned member, const struct region *region, size_t offset)
{
    uint32_t expected = MEMBER_FREE;
    if (!__atomic_compare_exchange_n(&mc->control->member[member].state, &expected, MEMBER_CLAIMED, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        return fail(GPUSYM_ERR_BAD_PARAM, "member %u of the multicast object has its memory already", member);
    }
    mc->control->member[member].offset = offset;
    handle_put(&region->id, region->fd, &mc->control->member[member].memory);
    __atomic_store_n(&mc->control->member[member].state, MEMBER_BOUND, __ATOMIC_RELEASE);
    return GPUSYM_SUCCESS;
}

static int sim_mc_bind(gpusym_mc_t *mc, unsigned member, void *p, size_t size, void **mp)
{
    if (fault_due(FAULT_BIND)) {
        return GPUSYM_ERR;
    }
    if (member >= mc->members || size != mc->region->size) {
        return fail(GPUSYM_ERR_BAD_PARAM, "member %u with %zu bytes, in a multicast object for %u members of %zu",
                    member, size, mc->members, mc->region->size);
    }
    struct region *region = table_pin(p);
    size_t offset = NULL == region ? 0 : (size_t) ((char *) p - region->base);
    int rc;
    if (NULL == region || REGION_OWN != region->kind || size > region->size - offset) {
        rc = fail(GPUSYM_ERR_BAD_PARAM, "%p is not %zu bytes of this GPU's memory", p, size);
    } else {
        rc = mc_publish(mc, member, region, offset);
    }
    if (GPUSYM_SUCCESS != rc) {
        if (NULL != region) {
            region_unpin(region);
        }
        return rc;
    }
    pthread_mutex_lock(&mc->lock);
    mc->own[member] = region; /* stays until mc_free, as peers may not have mapped it yet */
    pthread_mutex_unlock(&mc->lock);
    *mp = mc->region->base;
    return GPUSYM_SUCCESS;
}

static void sim_mc_free(gpusym_mc_t *mc)
{
    table_remove(mc->region->base, REGION_MULTICAST);
}

/* Maps what is not mapped yet of the members' memory; the caller holds mc->lock. */
static int mc_complete(gpusym_mc_t *mc)
{
    for (unsigned i = 0; i < mc->members; i++) {
        if (NULL != mc->member[i]) {
            continue;
        }
        /* whoever binds member i publishes it, in mc_publish */
        if (MEMBER_BOUND != __atomic_load_n(&mc->control->member[i].state, __ATOMIC_ACQUIRE)) {
            return fail(GPUSYM_ERR_NOT_AVAILABLE, "member %u has not bound its memory to the multicast object", i);
        }
        struct sim_handle memory = mc->control->member[i].memory;
        uint64_t offset = mc->control->member[i].offset;
        if (memory.id.size > SIZE_MAX / 4 || offset > memory.id.size || mc->region->size > memory.id.size - offset) {
            return fail(GPUSYM_ERR_UNREACHABLE, "member %u of the multicast object has too little memory", i);
        }
        int rc = region_import(&memory, &mc->member[i]);
        if (GPUSYM_SUCCESS != rc) {
            return rc;
        }
        mc->alias[i] = mc->member[i]->alias + offset;
    }
    __atomic_store_n(&mc->complete, true, __ATOMIC_RELEASE);
    return GPUSYM_SUCCESS;
}

int gpusym_sim_mc_members(const void *mp, void **alias, unsigned max)
{
    struct region *region = table_pin(mp);
    if (NULL == region) {
        return 0;
    }
    gpusym_mc_t *mc = region->mc;
    int rc = NULL == mc ? 0 : (int) mc->members;
    if (NULL != mc && !__atomic_load_n(&mc->complete, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&mc->lock);
        int err = mc_complete(mc);
        pthread_mutex_unlock(&mc->lock);
        rc = GPUSYM_SUCCESS != err ? err : rc;
    }
    if (rc > 0 && (unsigned) rc > max) {
        rc = fail(GPUSYM_ERR_BAD_PARAM, "the multicast object has more than %u members", max);
    }
    for (int i = 0; i < rc; i++) {
        alias[i] = mc->alias[i] + ((const char *) mp - region->base);
    }
    region_unpin(region);
    return rc;
}

const gpusym_device_t gpusym_device_sim = {
    .name = "sim",
    .simulated = true,
    .open = sim_open,
    .close = sim_close,
    .query = sim_query,
    .mem_range = sim_mem_range,
    .gpu_open = sim_gpu_open,
    .gpu_info = sim_gpu_info,
    .gpu_link = sim_gpu_link,
    .mem_alloc = sim_mem_alloc,
    .mem_free = sim_mem_free,
    .mem_zero = sim_mem_zero,
    .mem_export = sim_mem_export,
    .mem_unexport = sim_mem_unexport,
    .mem_import = sim_mem_import,
    .mem_unimport = sim_mem_unimport,
    .host_alloc = sim_host_alloc,
    .host_free = sim_host_free,
    .copy = sim_copy,
    .stream_create = sim_stream_create,
    .stream_destroy = sim_stream_destroy,
    .stream_poll = sim_stream_poll,
    .gpu_alive = sim_gpu_alive,
    .kernels_load = sim_kernels_load,
    .launch = sim_launch,
    .graph_launch = sim_graph_launch,
    .graph_destroy = sim_graph_destroy,
    .copy_async = sim_copy_async,
    .stream_flags = sim_stream_flags,
    .copy2d_async = sim_copy2d_async,
    .mc_create = sim_mc_create,
    .mc_import = sim_mc_import,
    .mc_bind = sim_mc_bind,
    .mc_free = sim_mc_free,
    .error = sim_error,
};
