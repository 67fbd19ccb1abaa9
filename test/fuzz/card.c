/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz: the cards that processes publish in the modex, as peers read them: those of coll/gpusym, of messages and of
 * btl/gpunvl. Each is this process's own, changed, cut or longer.
 */
#include "mca/common/ompi/ompi_compat.h"
#include "opal/util/proc.h"

#include <unistd.h>

#include "mca/common/gpusym/shm/segment.h"
#include "test/fuzz/fuzz.h"

enum { RANKS = 4, CARD_MAX = 1024, CHANGES = 4 };

/* ---- the modex, and the communicator of all ranks ---- */

static struct {
    unsigned char bytes[CARD_MAX]; /* as this process has published it */
    size_t size;
} published;
static fuzz_input_t *input;
static void (*tame)(void *card); /* so that nobody opens descriptors of processes that are not this one */

static bool modex_put(const void *data, size_t size)
{
    MUST(size <= CARD_MAX);
    memcpy(published.bytes, data, size);
    published.size = size;
    return true;
}

static size_t modex_get(void *data, size_t size)
{
    unsigned char card[CARD_MAX + 8] = {0};
    const unsigned how = (unsigned) fuzz_number(input, 1);
    size_t bytes = published.size;

    memcpy(card, published.bytes, published.size);
    for (unsigned i = 0; i < how % CHANGES; i++) {
        const size_t at = fuzz_number(input, 2) % published.size;
        fuzz_take(input, card + at, how & 16 ? 8 : 1);
    }
    if (how & 32) { /* all of it */
        const size_t from = fuzz_number(input, 1) % 2 ? 32 : 0;
        fuzz_take(input, card + from, published.size - from);
    }
    tame(card);
    if (how & 64) {
        bytes = fuzz_number(input, 2) % (published.size + 8);
    }
    memcpy(data, card, bytes < size ? bytes : size);
    return bytes;
}

static unsigned local_peers(uint32_t *vpid, unsigned max)
{
    for (unsigned i = 0; i < RANKS && i < max; i++) {
        vpid[i] = i;
    }
    return max < RANKS ? max : RANKS;
}

static opal_process_name_t name_of(int rank)
{
    return (opal_process_name_t){.jobid = OPAL_PROC_MY_NAME.jobid, .vpid = (opal_vpid_t) rank};
}

static void tame_segment(gpusym_segment_id_t *id)
{
    id->pid = (int32_t) getpid() == id->pid ? id->pid : INT32_MAX;
}

#define gpusym_modex_put(key, data, size, local) modex_put(data, size)
#define gpusym_modex_get(key, name, data, size) modex_get(data, size)
#define gpusym_modex_wait(key, name, data, size) modex_get(data, size)
#define gpusym_modex_fetch(key, name, data, size) modex_get(data, size)
#define gpusym_modex_complete() true
#define gpusym_modex_is_late() false
#define gpusym_local_peers local_peers
#define gpusym_same_mpirun(a, b) ((void) (a), (void) (b), true)
#define gpusym_comm_label(comm, text, size) ((void) (comm), (text)[0] = '\0', (text))
#define ompi_group_get_proc_name(group, rank) name_of(rank)
#define ompi_comm_size(comm) RANKS
#define ompi_comm_rank(comm) 0
#define opal_proc_for_name(name) (&neighbor)

static opal_proc_t neighbor, procs[RANKS];

/* ---- coll/gpusym ---- */

#define card_t coll_card_t
#include "mca/coll/gpusym/args/names.c"
#include "mca/coll/gpusym/team/peers.c"
#undef card_t
#undef KEY

coll_gpusym_params_t coll_gpusym_params;
gpusym_config_t gpusym_params;

void coll_gpusym_help(const char *topic, ...)
{
    MUST(NULL != topic);
}

static void tame_nothing(void *card)
{
    (void) card;
}

/* Cards that were taken have texts; those of ranks that agree have the same values. */
static void check_peers(coll_gpusym_peer_t *const *peer, int reason)
{
    for (unsigned r = 0; r < RANKS; r++) {
        MUST(NULL == peer[r] || NULL != memchr(peer[r]->card.version, '\0', sizeof version));
        MUST(NULL == peer[r] || NULL != memchr(coll_gpusym_peer_host(peer[r]), '\0', sizeof peer[r]->card.node));
    }
    for (unsigned r = 0; reason < 0 && r < RANKS; r++) {
        MUST(NULL != peer[r] && peer[r]->found && 0 == strcmp(version, peer[r]->card.version));
        MUST(0 == memcmp(peer[0]->card.value, peer[r]->card.value, sizeof peer[r]->card.value));
        (void) coll_gpusym_peer_lives(peer[r]);
        (void) coll_gpusym_peers_near(peer[0], peer[r]);
    }
    if (reason < 0) {
        char *astray = coll_gpusym_peers_astray(peer, RANKS);
        MUST(NULL != astray);
        free(astray);
        coll_gpusym_peers_forget(peer, RANKS);
    }
}

static void read_coll(fuzz_input_t *in)
{
    static const int kinds[] = {GPUSYM_DEVICE_AUTO, GPUSYM_DEVICE_CUDA, GPUSYM_DEVICE_SIM, GPUSYM_DEVICE_NONE};
    coll_gpusym_peer_t *peer[RANKS] = {NULL};
    gpusym_islands_t islands;
    int reason;

    tame = tame_nothing;
    gpusym_params.warn = (double) (fuzz_number(in, 1) % 2);
    gpusym_params.device = kinds[fuzz_number(in, 1) % 4];
    coll_gpusym_peers_publish();
    MUST(MPI_SUCCESS == coll_gpusym_peers_find(NULL, peer, &reason));
    check_peers(peer, reason);
    memset(peer, 0, sizeof peer);
    MUST(MPI_SUCCESS == coll_gpusym_peers_islands(NULL, &islands, peer, &reason));
    check_peers(peer, reason);
    MUST(reason >= 0 || (islands.nislands >= 1 && islands.nislands <= RANKS));
    for (uint32_t r = 0; reason < 0 && r < RANKS; r++) {
        const uint32_t island = gpusym_islands_find(&islands, r), number = gpusym_islands_number(&islands, r);
        MUST(island < islands.nislands && gpusym_island_member(&islands, island, number) == r);
    }
    gpusym_islands_free(&islands);
    for (int r = 0; r < RANKS; r++) {
        (void) coll_gpusym_peers_summed(NULL, r);
    }
    coll_gpusym_peers_fini();
}

/* ---- messages ---- */

#define card_t pml_card_t
#define my_card pml_my_card
#define published pml_published
#include "mca/pml/gpusym/peers.c"
#undef card_t
#undef my_card
#undef published
#undef KEY

static void tame_pml(void *card)
{
    tame_segment(&((pml_card_t *) card)->pages);
}

static void read_pml(void)
{
    tame = tame_pml;
    pml_gpusym_peers_publish();
    MUST(pml_published);
    pml_gpusym_peers_attach();
    for (uint32_t i = 0; i < pml_gpusym_npeers; i++) {
        pml_gpusym_peer_t *peer = pml_gpusym_peers[i];
        MUST(NULL == peer || peer->slot < GPUSYM_SEND_DESC_SLOTS);
        if (NULL != peer) {
            (void) pml_gpusym_peer_decide(peer);
        }
    }
    pml_gpusym_peers_close();
}

/* ---- btl/gpunvl ---- */

#define card_t btl_card_t
#include "mca/btl/gpunvl/peers.c"

btl_gpunvl_t btl_gpunvl;

bool btl_gpunvl_open_inboxes(void *memory)
{
    return NULL != memory;
}

uint64_t btl_gpunvl_ring_bytes(void)
{
    return GPUSYM_RING_HEAD + btl_gpunvl.ring_size;
}

bool btl_gpunvl_is_attached(uint32_t slot)
{
    MUST(slot < btl_gpunvl.slots);
    return false;
}

void btl_gpunvl_drop_queued(btl_gpunvl_endpoint_t *endpoint, int status)
{
    MUST(NULL != endpoint && OPAL_SUCCESS != status);
}

void btl_gpunvl_report_dead(btl_gpunvl_endpoint_t *endpoint)
{
    MUST(NULL == endpoint); /* nothing is under way */
}

static void tame_btl(void *card)
{
    tame_segment(&((btl_card_t *) card)->pages);
    tame_segment(&((btl_card_t *) card)->inboxes);
}

static void read_btl(void)
{
    struct mca_btl_base_endpoint_t *endpoints[RANKS];
    opal_proc_t *all[RANKS];
    static const unsigned char record[64];

    tame = tame_btl;
    btl_gpunvl.ring_size = 4096;
    btl_gpunvl.slots = RANKS;
    MUST(btl_gpunvl_publish());
    for (int i = 0; i < RANKS; i++) {
        all[i] = &procs[i];
    }
    MUST(OPAL_SUCCESS == btl_gpunvl_add_procs(NULL, RANKS, all, endpoints, NULL));
    for (unsigned i = 0; i < RANKS; i++) {
        if (NULL != endpoints[i]) {
            MUST(endpoints[i]->slot < RANKS && endpoints[i]->bytes == segment_bytes());
            (void) gpusym_ring_write(&endpoints[i]->writer, 1, record, sizeof record);
            (void) gpusym_peer_alive(endpoints[i]->pages);
        }
    }
    MUST(OPAL_SUCCESS == btl_gpunvl_del_procs(NULL, RANKS, all, endpoints));
    btl_gpunvl_withdraw();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t in = {data, size};
    static char node[] = "a-host";

    opal_process_info.nodename = node;
    opal_process_info.my_local_rank = 0;
    neighbor.proc_name = OPAL_PROC_MY_NAME;
    neighbor.proc_flags = OPAL_PROC_ON_NODE;
    for (int i = 0; i < RANKS; i++) {
        procs[i].proc_name = name_of(i);
        procs[i].proc_flags = OPAL_PROC_ON_NODE;
    }
    input = &in;
    switch (fuzz_number(&in, 1) % 3) {
    case 0:
        read_coll(&in);
        break;
    case 1:
        read_pml();
        break;
    default:
        read_btl();
    }
    return 0;
}
