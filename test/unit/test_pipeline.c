/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/p2p/pipeline.c on the simulated GPU: both halves in one process, which is a peer of
 * its own, polled by turns; then two processes, by fork, one of which may be killed.  A seed as the argument repeats a
 * run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mca/common/gpusym/device/sim/sim.h"
#include "mca/common/gpusym/memory/reg.h"
#include "mca/common/gpusym/p2p/pipeline.h"
#include "test/unit/random.h"
#include "test/unit/two.h"

#define OK(call) assert_int_equal((call), GPUSYM_SUCCESS)

enum { ROOM = 6 << 20, CONTEXT = 1, TAG = 2 };
static gpusym_device_t dev; /* the simulator, less what a test takes away */
static gpusym_gpu_t *gpu;
static gpusym_peer_t *self;
static char *gpu_from, *gpu_to;               /* of the GPU */
static bool by_gpu = true;                    /* pieces may go through GPU memory */
static unsigned char *from, *to, *got, *want; /* of the host; `from` is what gpu_from holds too */

static bool open_all(unsigned slot, gpusym_pages_id_t *id)
{
    const char *why = "";
    dev = gpusym_device_sim;
    if (GPUSYM_SUCCESS != dev.open(&why) || GPUSYM_SUCCESS != dev.gpu_open(NULL, &gpu) ||
        GPUSYM_SUCCESS != dev.mem_alloc(gpu, ROOM, (void **) &gpu_from) ||
        GPUSYM_SUCCESS != dev.mem_alloc(gpu, ROOM, (void **) &gpu_to) ||
        GPUSYM_SUCCESS != dev.copy(gpu, gpu_from, from, ROOM) || GPUSYM_SUCCESS != gpusym_pages_open(id) ||
        GPUSYM_SUCCESS != gpusym_send_descs_open(slot)) {
        return false;
    }
    return true;
}

static int setup(void **state)
{
    gpusym_pages_id_t id;
    (void) state;
    assert_true(open_all(0, &id));
    OK(gpusym_pages_peer(&id, &self));
    OK(gpusym_send_descs_attach(self, 0));
    return 0;
}

static int teardown(void **state)
{
    (void) state;
    assert_int_equal(gpusym_send_descs_live(), 0);
    gpusym_pipelines_close(&dev);
    gpusym_pipelines_close(&dev);
    gpusym_reg_close(&dev);
    gpusym_copy_queues_close();
    gpusym_lanes_close();
    by_gpu = true;
    OK(dev.mem_free(gpu, gpu_from));
    OK(dev.mem_free(gpu, gpu_to));
    gpusym_send_descs_close();
    gpusym_pages_close();
    dev.close();
    return 0;
}

/* ---- one process ---- */

/* A message and its two halves. */
typedef struct {
    uint32_t index;
    uint8_t rts[GPUSYM_RTS];
    gpusym_send_desc_t desc;
    gpusym_pipeline_t out, in;
    bool sent, received;
    int sent_as, received_as;
} message_t;

static void offer(message_t *m, uint64_t bytes)
{
    const gpusym_offer_t o = {.context = CONTEXT, .tag = TAG, .bytes = bytes, .kind = GPUSYM_SEND_DESC_PIPELINE};
    memset(m, 0, sizeof *m);
    OK(gpusym_send_desc_offer(&o, NULL, &m->index, m->rts));
}

static void poll_both(message_t *m)
{
    m->sent = m->sent || gpusym_pipeline_poll(&m->out, &m->sent_as);
    m->received = m->received || gpusym_pipeline_poll(&m->in, &m->received_as);
    gpusym_copy_flush(true);
}

static void finish(message_t *m)
{
    while (!m->sent || !m->received) {
        poll_both(m);
        sched_yield();
    }
    gpusym_send_desc_free(m->index);
}

/* A message of so many bytes, of which `wanted` are received; between memory of the GPU or of the host. */
static void one_message(uint64_t bytes, uint64_t wanted, bool out_gpu, bool in_gpu, int expected)
{
    message_t m;
    memset(want, 0xee, ROOM);
    memcpy(to, want, ROOM);
    OK(dev.copy(gpu, gpu_to, want, ROOM));
    offer(&m, bytes);
    gpusym_pipeline_send(&m.out, &dev, out_gpu ? gpu : NULL, (out_gpu ? gpu_from : (char *) from) + 3, bytes, m.index,
                         by_gpu);
    for (unsigned i = 0; i < 3; i++) { /* nobody receives yet */
        assert_false(gpusym_pipeline_poll(&m.out, &m.sent_as));
    }
    OK(gpusym_send_desc_claim(self, m.rts, &m.desc));
    gpusym_pipeline_receive(&m.in, &dev, in_gpu ? gpu : NULL, (in_gpu ? gpu_to : (char *) to) + 5, wanted, &m.desc,
                            by_gpu);
    finish(&m);
    assert_int_equal(m.sent_as, expected);
    assert_int_equal(m.received_as, expected);
    if (GPUSYM_SUCCESS == expected) {
        memcpy(want + 5, from + 3, wanted < bytes ? wanted : bytes);
        OK(dev.copy(gpu, got, in_gpu ? gpu_to : (char *) to, ROOM));
        assert_memory_equal(got, want, ROOM);
    }
}

static void all_sizes(void)
{
    static const uint64_t sizes[] = {0,      1,      7,       4096,    65536,         65537,
                                     262144, 300001, 1 << 20, 2 << 20, (2 << 20) + 1, 5000000};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (unsigned ends = 0; ends < 4; ends++) {
            one_message(sizes[i], sizes[i], ends & 1, ends & 2, GPUSYM_SUCCESS);
        }
    }
}

static void messages_come_whole(void **state)
{
    (void) state;
    all_sizes();
    by_gpu = false;
    all_sizes();
}

static int export_refused(gpusym_gpu_t *which, void *p, gpusym_handle_t *handle)
{
    (void) which;
    (void) p;
    (void) handle;
    return GPUSYM_ERR_UNREACHABLE;
}

static void slots_are_host_memory_where_the_gpus_is_not_shared(void **state)
{
    (void) state;
    dev.mem_export = export_refused;
    all_sizes();
}

/* One side does not want GPU memory. */
static void both_sides_must_allow_gpu_memory(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 3; i++) {
        message_t m;
        offer(&m, 3000000);
        gpusym_pipeline_send(&m.out, &dev, gpu, gpu_from, 3000000, m.index, 1 != i);
        OK(gpusym_send_desc_claim(self, m.rts, &m.desc));
        gpusym_pipeline_receive(&m.in, &dev, gpu, gpu_to, 3000000, &m.desc, 2 != i);
        while (!m.sent || !m.received) {
            poll_both(&m);
            assert_true(0 == m.in.ring.slots || (NULL != m.in.mem) == (0 == i));
            sched_yield();
        }
        OK(m.sent_as);
        OK(m.received_as);
        OK(dev.copy(gpu, got, gpu_to, 3000000));
        assert_memory_equal(got, from, 3000000);
        gpusym_send_desc_free(m.index);
    }
}

static void a_receiver_may_want_less(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 60; i++) {
        const uint64_t bytes = next_random() % 5000000 >> next_random() % 20;
        one_message(bytes, next_random() % (bytes + 2), next_random() & 1, next_random() & 1, GPUSYM_SUCCESS);
    }
}

/* Offered as mapped memory, which the receiver cannot map: it asks for a pipeline. */
static void a_receiver_may_ask_for_a_pipeline(void **state)
{
    static const uint64_t sizes[] = {0, 1, 100000, 3000000};
    (void) state;
    for (unsigned i = 0; i < 8; i++) {
        const uint64_t bytes = sizes[i / 2];
        const gpusym_offer_t o = {
            .context = CONTEXT, .tag = TAG, .bytes = bytes, .kind = GPUSYM_SEND_DESC_MAPPED, .key = 77};
        message_t m = {.index = 0};
        OK(gpusym_send_desc_offer(&o, NULL, &m.index, m.rts));
        OK(gpusym_send_desc_claim(self, m.rts, &m.desc));
        gpusym_pipeline_receive(&m.in, &dev, i & 1 ? gpu : NULL, i & 1 ? gpu_to : (char *) to, bytes, &m.desc, true);
        if (0 != bytes) {
            for (unsigned k = 0; k < 3; k++) {
                assert_false(gpusym_pipeline_poll(&m.in, &m.received_as));
            }
            OK(gpusym_send_desc_take_pipeline(m.index));
        }
        gpusym_pipeline_send(&m.out, &dev, gpu, gpu_from, bytes, m.index, true);
        finish(&m);
        OK(m.sent_as);
        OK(m.received_as);
        OK(dev.copy(gpu, got, i & 1 ? gpu_to : (char *) to, bytes));
        assert_memory_equal(got, from, bytes);
    }
}

static int register_refused(gpusym_gpu_t *which, void *host, size_t size, void **at)
{
    (void) which;
    (void) host;
    (void) size;
    (void) at;
    return GPUSYM_ERR_NO_MEMORY;
}

static void memory_that_is_not_pinned_will_do(void **state)
{
    (void) state;
    dev.host_register = register_refused;
    all_sizes();
}

/* More messages than there are slots for: those that have none wait for the others. */
static void many_share_the_slots(void **state)
{
    enum { N = 24, BYTES = 2500000 };
    static message_t m[N];
    unsigned over = 0;
    (void) state;
    for (unsigned i = 0; i < N; i++) {
        offer(&m[i], BYTES);
        gpusym_pipeline_send(&m[i].out, &dev, i & 1 ? gpu : NULL, i & 1 ? gpu_from + i : (char *) from + i, BYTES,
                             m[i].index, true);
        OK(gpusym_send_desc_claim(self, m[i].rts, &m[i].desc));
        unsigned char *dst = malloc(BYTES);
        assert_non_null(dst);
        gpusym_pipeline_receive(&m[i].in, &dev, NULL, dst, BYTES, &m[i].desc, true);
    }
    while (over < N) {
        message_t *one = &m[next_random() % N];
        const bool was = one->sent && one->received;
        poll_both(one);
        over += !was && one->sent && one->received;
    }
    for (unsigned i = 0; i < N; i++) {
        OK(m[i].sent_as);
        OK(m[i].received_as);
        assert_memory_equal(m[i].in.at, from + i, BYTES);
        free(m[i].in.at);
        gpusym_send_desc_free(m[i].index);
    }
}

/* Every fourth kernel is refused. */
static int copy_refused(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    static unsigned n;
    return 0 == ++n % 4 ? GPUSYM_ERR : gpusym_device_sim.graph_launch(graph, stream, kernel, w);
}

/* From every fourth on all are lost, as behind an error of the GPU: none writes its words. */
static bool lost;
static int copy_lost(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    static unsigned n;
    lost = lost || 0 == ++n % 4;
    return lost ? GPUSYM_SUCCESS : gpusym_device_sim.graph_launch(graph, stream, kernel, w);
}

/* Where the graph is not made yet, a kernel is launched without it. */
static int launch_refused(gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    (void) stream;
    (void) kernel;
    (void) w;
    return GPUSYM_ERR;
}

static void what_is_refused_the_driver_copies(void **state)
{
    (void) state;
    dev.graph_launch = copy_refused;
    dev.launch = launch_refused;
    for (unsigned i = 0; i < 4; i++) {
        one_message(5000000, 5000000, i & 1, !(i & 1), GPUSYM_SUCCESS);
    }
}

/* A copy that fails, on either side: both are told, and the pipeline is as good as before. */
static void an_error_ends_both_halves(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 12; i++) {
        dev.graph_launch = copy_lost;
        lost = false;
        one_message(5000000, 5000000, i & 1, !(i & 1), GPUSYM_ERR);
        dev.graph_launch = gpusym_device_sim.graph_launch;
        one_message(5000000, 5000000, true, true, GPUSYM_SUCCESS);
    }
}

/* A GPU that begins no kernel before it is let go. */
static struct {
    gpusym_graph_t **graph;
    gpusym_stream_t *stream;
    unsigned kernel;
    gpusym_work_t work;
} held[2 * GPUSYM_PIPELINE_SLOTS];
static unsigned nheld;

static int launch_held(gpusym_graph_t **graph, gpusym_stream_t *stream, unsigned kernel, const gpusym_work_t *w)
{
    assert_true(nheld < sizeof held / sizeof *held);
    held[nheld].graph = graph;
    held[nheld].stream = stream;
    held[nheld].kernel = kernel;
    held[nheld++].work = *w;
    return GPUSYM_SUCCESS;
}

static void let_go(void)
{
    for (unsigned i = 0; i < nheld; i++) {
        OK(gpusym_device_sim.graph_launch(held[i].graph, held[i].stream, held[i].kernel, &held[i].work));
    }
    nheld = 0;
}

/* One half's copies are slow: the other half waits for them, whether they fill slots or empty them. */
static void slots_are_used_once_copies_have_ended(void **state)
{
    enum { BYTES = 5000000 };
    static gpusym_device_t slow;
    (void) state;
    slow = dev;
    slow.graph_launch = launch_held;
    for (unsigned i = 0; i < 4; i++) {
        message_t m;
        unsigned let = 0;
        offer(&m, BYTES);
        gpusym_pipeline_send(&m.out, i & 1 ? &slow : &dev, gpu, gpu_from, BYTES, m.index, i & 2);
        OK(gpusym_send_desc_claim(self, m.rts, &m.desc));
        gpusym_pipeline_receive(&m.in, i & 1 ? &dev : &slow, gpu, gpu_to, BYTES, &m.desc, i & 2);
        OK(dev.copy(gpu, gpu_to, want, BYTES));
        while (!m.sent || !m.received) {
            for (unsigned k = 0; k < 100; k++) { /* what could be done too early is done */
                poll_both(&m);
                usleep(50);
            }
            let += 0 != nheld;
            let_go();
        }
        finish(&m);
        OK(m.sent_as);
        OK(m.received_as);
        OK(dev.copy(gpu, got, gpu_to, BYTES));
        assert_memory_equal(got, from, BYTES);
        assert_true(let > 0);
    }
}

/* Anything in the flow: the halves end, with an error or without, and reach nothing that is not theirs. */
static void garbage_ends_both_halves(void **state)
{
    unsigned corrupt = 0;
    (void) state;
    for (unsigned i = 0; i < 600; i++) {
        const uint64_t bytes = 1 + next_random() % 1000000;
        const unsigned when = next_random() % 3;
        message_t m;
        offer(&m, bytes);
        gpusym_pipeline_send(&m.out, &dev, i & 2 ? gpu : NULL, i & 2 ? gpu_from : (char *) from, bytes, m.index, true);
        OK(gpusym_send_desc_claim(self, m.rts, &m.desc));
        gpusym_pipeline_receive(&m.in, &dev, i & 1 ? gpu : NULL, i & 1 ? gpu_to : (char *) to, bytes, &m.desc, true);
        for (unsigned k = 0; k < 200 && !(m.sent && m.received); k++) {
            if (k == when) {
                unsigned char *room = gpusym_send_desc_room(m.index);
                const unsigned at = next_random() % 136; /* the first three lines */
                room[at] ^= (unsigned char) (1 + next_random() % 255);
            }
            poll_both(&m);
            sched_yield();
        }
        corrupt += GPUSYM_ERR_CORRUPT == m.received_as || GPUSYM_ERR_CORRUPT == m.sent_as;
        if (!m.sent || !m.received) { /* what was told was told in vain: as if the other one had died */
            gpusym_pipeline_fail(&m.in, GPUSYM_ERR);
            gpusym_pipeline_fail(&m.out, GPUSYM_ERR);
        }
        finish(&m);
    }
    assert_true(corrupt > 100);
}

/* ---- buffers ---- */

static void buffers_are_received_as_pipelines(void **state)
{
    static const uint64_t sizes[] = {1, 385, 8192, 100000};
    gpusym_pipeline_buffer_t buffer;
    gpusym_copy_t copy;
    int status;
    (void) state;
    for (unsigned i = 0; i < 8; i++) {
        const gpusym_offer_t o = {
            .context = CONTEXT, .tag = TAG, .bytes = sizes[i / 2], .kind = GPUSYM_SEND_DESC_MAPPED, .key = 1};
        gpusym_send_desc_t desc;
        gpusym_pipeline_t in;
        uint8_t rts[GPUSYM_RTS];
        uint32_t index;
        OK(gpusym_send_desc_offer(&o, NULL, &index, rts));
        OK(gpusym_pipeline_buffer_get(&dev, gpu, o.bytes, &buffer));
        assert_non_null(buffer.dev);
        OK(gpusym_copy_start(&dev, gpu, buffer.dev, gpu_from, o.bytes, &copy));
        while (0 == (status = gpusym_copy_poll(&copy))) {
            sched_yield();
        }
        assert_int_equal(status, 1);
        OK(gpusym_pipeline_buffer_change(index, &buffer));
        OK(gpusym_send_desc_claim(self, rts, &desc));
        assert_int_equal(desc.offer.kind, GPUSYM_SEND_DESC_PIPELINE);
        gpusym_pipeline_receive(&in, &dev, i & 1 ? gpu : NULL, i & 1 ? gpu_to : (char *) to, o.bytes, &desc, true);
        while (!gpusym_pipeline_poll(&in, &status)) {
            sched_yield();
        }
        OK(status);
        OK(dev.copy(gpu, got, i & 1 ? gpu_to : (char *) to, o.bytes));
        assert_memory_equal(got, from, o.bytes);
        assert_int_equal(gpusym_send_desc_state(index, &status), GPUSYM_SEND_DESC_DONE);
        gpusym_pipeline_buffer_put(&buffer);
        gpusym_send_desc_free(index);
    }
}

static void buffers_have_their_share(void **state)
{
    enum { N = GPUSYM_PIPELINE_BUFFERS / 65536 };
    static gpusym_pipeline_buffer_t buffer[N];
    gpusym_pipeline_buffer_t more;
    (void) state;
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < N; i++) {
            OK(gpusym_pipeline_buffer_get(&dev, NULL, 65536, &buffer[i]));
            memset(buffer[i].host, (int) i, 65536);
        }
        assert_int_equal(gpusym_pipeline_buffer_get(&dev, NULL, 1, &more), GPUSYM_ERR_NOT_AVAILABLE);
        one_message(5000000, 5000000, true, true, GPUSYM_SUCCESS); /* pipelines have theirs */
        for (unsigned i = 0; i < N; i++) {
            const unsigned char *p = buffer[i].host;
            assert_int_equal(p[0], i & 0xff);
            assert_int_equal(p[65535], i & 0xff);
            gpusym_pipeline_buffer_put(&buffer[i]);
            gpusym_pipeline_buffer_put(&buffer[i]); /* without effect */
        }
    }
    assert_int_equal(gpusym_pipeline_buffer_get(&dev, NULL, 0, &more), GPUSYM_ERR_NOT_AVAILABLE);
}

/* ---- two processes ---- */

enum { MESSAGES = 60 };

typedef struct {
    two_meeting_t meeting;
    uint32_t sent; /* RTS messages */
    uint8_t rts[MESSAGES][GPUSYM_RTS];
} channel_t;

static channel_t *channel;

static pid_t start(void (*child)(gpusym_peer_t *), gpusym_peer_t **peer)
{
    channel = two_channel(sizeof *channel);
    return two_start(&channel->meeting, open_all, child, peer);
}

static int reap(pid_t pid)
{
    return two_reap(pid, channel, sizeof *channel);
}

static uint64_t bytes_of(unsigned i)
{
    return (i * 2654435761u >> 8) % 5000000 >> i % 9;
}

/* The child: receives what comes, in order, and compares. */
static void receive_all(gpusym_peer_t *peer)
{
    unsigned wrong = 0;
    for (unsigned i = 0; i < MESSAGES; i++) {
        gpusym_send_desc_t desc;
        gpusym_pipeline_t in;
        int status;
        const bool in_gpu = i / 2 & 1;
        two_reach(&channel->sent, i + 1);
        if (GPUSYM_SUCCESS != gpusym_send_desc_claim(peer, channel->rts[i], &desc)) {
            _exit(3);
        }
        const uint64_t wanted = 0 == i % 5 ? desc.offer.bytes / 2 : desc.offer.bytes;
        gpusym_pipeline_receive(&in, &dev, in_gpu ? gpu : NULL, in_gpu ? gpu_to : (char *) to, wanted, &desc, true);
        while (!gpusym_pipeline_poll(&in, &status)) {
            sched_yield();
        }
        wrong += GPUSYM_SUCCESS != status || GPUSYM_SUCCESS != dev.copy(gpu, got, in_gpu ? gpu_to : (char *) to, ROOM);
        wrong += 0 != memcmp(got, from + i, wanted);
    }
    _exit(0 != wrong);
}

static void offer_to_child(gpusym_pipeline_t *out, unsigned i, uint64_t bytes, uint32_t *index)
{
    const gpusym_offer_t o = {
        .context = CONTEXT, .tag = TAG, .to = 1, .bytes = bytes, .kind = GPUSYM_SEND_DESC_PIPELINE};
    OK(gpusym_send_desc_offer(&o, NULL, index, channel->rts[i]));
    gpusym_pipeline_send(out, &dev, i & 1 ? gpu : NULL, i & 1 ? gpu_from + i : (char *) from + i, bytes, *index,
                         0 != i % 3);
    __atomic_store_n(&channel->sent, i + 1, __ATOMIC_RELEASE);
}

static void messages_go_between_processes(void **state)
{
    enum { AT_A_TIME = 7 };
    gpusym_peer_t *peer;
    gpusym_pipeline_t out[AT_A_TIME];
    uint32_t index[AT_A_TIME];
    bool live[AT_A_TIME] = {false};
    unsigned next = 0, ended = 0;
    (void) state;
    const pid_t pid = start(receive_all, &peer);
    while (ended < MESSAGES) {
        for (unsigned i = 0; i < AT_A_TIME; i++) {
            int status;
            if (!live[i] && next < MESSAGES) {
                offer_to_child(&out[i], next, bytes_of(next), &index[i]);
                next++;
                live[i] = true;
            } else if (live[i] && gpusym_pipeline_poll(&out[i], &status)) {
                OK(status);
                gpusym_send_desc_free(index[i]);
                live[i] = false;
                ended++;
            }
        }
        assert_true(ended == MESSAGES || gpusym_peer_alive(peer));
        sched_yield();
    }
    assert_int_equal(reap(pid), 0);
    teardown(NULL);
}

/* The child dies in the middle of a message. */
static void receive_some_and_die(gpusym_peer_t *peer)
{
    gpusym_send_desc_t desc;
    gpusym_pipeline_t in;
    int status;
    two_reach(&channel->sent, 1);
    if (GPUSYM_SUCCESS == gpusym_send_desc_claim(peer, channel->rts[0], &desc)) {
        gpusym_pipeline_receive(&in, &dev, NULL, to, desc.offer.bytes, &desc, true);
        while (in.copies.ended < 3 && !gpusym_pipeline_poll(&in, &status)) {
        }
        raise(SIGKILL);
    }
}

static void a_killed_receiver_ends_the_sender(void **state)
{
    gpusym_peer_t *peer;
    gpusym_pipeline_t out;
    uint32_t index;
    int status;
    (void) state;
    const pid_t pid = start(receive_some_and_die, &peer);
    channel->sent = 0;
    offer_to_child(&out, 0, 5000000, &index);
    while (gpusym_peer_alive(peer)) {
        assert_false(gpusym_pipeline_poll(&out, &status));
        sched_yield();
    }
    gpusym_pipeline_fail(&out, GPUSYM_ERR_UNREACHABLE);
    while (!gpusym_pipeline_poll(&out, &status)) {
        sched_yield();
    }
    assert_int_equal(status, GPUSYM_ERR_UNREACHABLE);
    gpusym_send_desc_free(index);
    assert_true(WIFSIGNALED(reap(pid)));
    teardown(NULL);
}

static void send_some_and_die(gpusym_peer_t *peer)
{
    gpusym_pipeline_t out;
    uint32_t index;
    int status;
    const gpusym_offer_t o = {.context = CONTEXT, .tag = TAG, .bytes = 5000000, .kind = GPUSYM_SEND_DESC_PIPELINE};
    (void) peer;
    if (GPUSYM_SUCCESS == gpusym_send_desc_offer(&o, NULL, &index, channel->rts[0])) {
        gpusym_pipeline_send(&out, &dev, NULL, from, o.bytes, index, true);
        __atomic_store_n(&channel->sent, 1, __ATOMIC_RELEASE);
        while (out.copies.ended < 3 && !gpusym_pipeline_poll(&out, &status)) {
        }
        raise(SIGKILL);
    }
}

static void a_killed_sender_ends_the_receiver(void **state)
{
    gpusym_peer_t *peer;
    gpusym_send_desc_t desc;
    gpusym_pipeline_t in;
    int status;
    (void) state;
    const pid_t pid = start(send_some_and_die, &peer);
    two_reach(&channel->sent, 1);
    OK(gpusym_send_desc_claim(peer, channel->rts[0], &desc));
    gpusym_pipeline_receive(&in, &dev, gpu, gpu_to, desc.offer.bytes, &desc, true);
    bool ended = false; /* by itself, if the slots could not be mapped any more */
    while (gpusym_peer_alive(peer) && !ended) {
        ended = gpusym_pipeline_poll(&in, &status);
        sched_yield();
    }
    if (!ended) {
        gpusym_pipeline_fail(&in, GPUSYM_ERR_UNREACHABLE);
    }
    while (!ended && !gpusym_pipeline_poll(&in, &status)) {
        sched_yield();
    }
    assert_int_equal(status, GPUSYM_ERR_UNREACHABLE);
    assert_true(WIFSIGNALED(reap(pid)));
    teardown(NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(messages_come_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(slots_are_host_memory_where_the_gpus_is_not_shared, setup, teardown),
        cmocka_unit_test_setup_teardown(both_sides_must_allow_gpu_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(a_receiver_may_want_less, setup, teardown),
        cmocka_unit_test_setup_teardown(a_receiver_may_ask_for_a_pipeline, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_that_is_not_pinned_will_do, setup, teardown),
        cmocka_unit_test_setup_teardown(many_share_the_slots, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_refused_the_driver_copies, setup, teardown),
        cmocka_unit_test_setup_teardown(an_error_ends_both_halves, setup, teardown),
        cmocka_unit_test_setup_teardown(slots_are_used_once_copies_have_ended, setup, teardown),
        cmocka_unit_test_setup_teardown(garbage_ends_both_halves, setup, teardown),
        cmocka_unit_test_setup_teardown(buffers_are_received_as_pipelines, setup, teardown),
        cmocka_unit_test_setup_teardown(buffers_have_their_share, setup, teardown),
        cmocka_unit_test(messages_go_between_processes),
        cmocka_unit_test(a_killed_receiver_ends_the_sender),
        cmocka_unit_test(a_killed_sender_ends_the_receiver),
    };
    random_start(argc, argv);
    from = malloc(ROOM);
    to = malloc(ROOM);
    got = malloc(ROOM);
    want = malloc(ROOM);
    if (NULL == from || NULL == to || NULL == got || NULL == want) {
        return 1;
    }
    for (unsigned i = 0; i < ROOM; i++) {
        from[i] = (unsigned char) next_random();
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
