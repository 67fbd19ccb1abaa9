/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A switch whose wires are long: an interface eth0 in each of several network namespaces, and every frame between them
 * comes out DELAY microseconds after it went in. For kernels without netem; see test/mpi/hosts.sh.
 *
 *     tapswitch DELAY PID...     PID: a process in the namespace, one for each port
 *
 * Says "ready" on stdout when the interfaces are there, which the caller configures. Reads commands from stdin, a line
 * each, and ends with it: "cut N" switches port N off (1: the first), "uncut N" on. The interface notices nothing, as
 * with a port of a switch that goes dead.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PORTS_MAX 32
#define FRAME_MAX 9216  /* bytes: an MTU of 9000 and the Ethernet header */
#define FLIGHT_MAX 8192 /* frames that a wire holds; more are dropped */
#define ADDRESS_MAX 64  /* Ethernet addresses that the switch learns */
#define SLACK_NS 1000   /* of timers; the system's default of 50 us would be seen in the delay */
#define BATCH 64        /* frames that are read from a port before the others have their turn */
#define ADDRESS_BYTES 6

typedef struct {
    uint64_t due; /* ns */
    uint32_t bytes;
    uint8_t *data; /* owned */
} frame_t;

/* One port, and the wire from it: frames leave in the order in which they came. */
typedef struct {
    int fd;
    bool cut;
    frame_t frame[FLIGHT_MAX];
    uint64_t first, end; /* numbers of the frames on the wire, modulo FLIGHT_MAX their places */
} port_t;

static port_t *ports;
static int nports;
static uint64_t delay; /* ns */

/* Who is behind which port. */
static struct {
    uint8_t address[ADDRESS_BYTES];
    int port;
} known[ADDRESS_MAX];
static int nknown;

static void fail(const char *what)
{
    fprintf(stderr, "tapswitch: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t) t.tv_sec * 1000000000u + (uint64_t) t.tv_nsec;
}

/* ---- ports ---- */

/* Makes eth0 in this thread's network namespace; returns its descriptor. */
static int make_interface(void)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0) {
        fail("/dev/net/tun");
    }
    snprintf(request.ifr_name, sizeof request.ifr_name, "eth0");
    if (0 != ioctl(fd, TUNSETIFF, &request)) {
        fail("TUNSETIFF");
    }
    return fd;
}

static void open_port(port_t *port, const char *pid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%s/ns/net", pid);
    const int ns = open(path, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || 0 != setns(ns, CLONE_NEWNET)) {
        fail(path);
    }
    close(ns);
    port->fd = make_interface();
}

/* ---- frames ---- */

static int find_port(const uint8_t *address)
{
    for (int i = 0; i < nknown; i++) {
        if (0 == memcmp(known[i].address, address, ADDRESS_BYTES)) {
            return known[i].port;
        }
    }
    return -1;
}

static void learn(const uint8_t *address, int port)
{
    if (find_port(address) < 0 && nknown < ADDRESS_MAX) {
        memcpy(known[nknown].address, address, ADDRESS_BYTES);
        known[nknown++].port = port;
    }
}

/* Puts a frame on the wire of its port. */
static void take_frame(int from, const uint8_t *data, uint32_t bytes)
{
    port_t *port = &ports[from];
    uint8_t *copy;

    if (port->cut || bytes < 2 * ADDRESS_BYTES || FLIGHT_MAX == port->end - port->first ||
        NULL == (copy = malloc(bytes))) {
        return; /* a network may lose frames */
    }
    memcpy(copy, data, bytes);
    learn(data + ADDRESS_BYTES, from);
    port->frame[port->end++ % FLIGHT_MAX] = (frame_t){now() + delay, bytes, copy};
}

/* Takes a frame off the wire: to whom it is addressed, or to all others where the switch does not know that one. */
static void give_frame(int from, const frame_t *frame)
{
    const int to = find_port(frame->data);

    for (int i = 0; i < nports; i++) {
        if (i != from && !ports[i].cut && (to < 0 || to == i)) {
            (void) !write(ports[i].fd, frame->data, frame->bytes); /* it is lost where there is no room */
        }
    }
    free(frame->data);
}

static void read_port(int i)
{
    uint8_t data[FRAME_MAX];

    for (int k = 0; k < BATCH; k++) {
        const ssize_t bytes = read(ports[i].fd, data, sizeof data);
        if (bytes <= 0) {
            return;
        }
        take_frame(i, data, (uint32_t) bytes);
    }
}

/* Delivers what is due; returns when the next frame is, UINT64_MAX: no frame is on a wire. */
static uint64_t deliver(void)
{
    uint64_t next = UINT64_MAX;

    for (int i = 0; i < nports; i++) {
        port_t *port = &ports[i];
        while (port->first != port->end && port->frame[port->first % FLIGHT_MAX].due <= now()) {
            give_frame(i, &port->frame[port->first++ % FLIGHT_MAX]);
        }
        if (port->first != port->end && port->frame[port->first % FLIGHT_MAX].due < next) {
            next = port->frame[port->first % FLIGHT_MAX].due;
        }
    }
    return next;
}

/* ---- commands ---- */

static void obey(const char *line)
{
    char word[16];
    int n;

    if (2 != sscanf(line, "%15s %d", word, &n) || n < 1 || n > nports ||
        (0 != strcmp(word, "cut") && 0 != strcmp(word, "uncut"))) {
        fprintf(stderr, "tapswitch: not a command: %s", line);
        return;
    }
    ports[n - 1].cut = 0 == strcmp(word, "cut");
}

/* Waits for a frame, a command, or the time `next`. */
static void wait_for(uint64_t next)
{
    struct pollfd fds[PORTS_MAX + 1] = {{.fd = STDIN_FILENO, .events = POLLIN}};
    const uint64_t t = now(), ns = next > t ? next - t : 0;
    const struct timespec limit = {(time_t) (ns / 1000000000u), (long) (ns % 1000000000u)};
    char line[64];

    for (int i = 0; i < nports; i++) {
        fds[i + 1] = (struct pollfd){.fd = ports[i].fd, .events = POLLIN};
    }
    if (ppoll(fds, (nfds_t) nports + 1, UINT64_MAX == next ? NULL : &limit, NULL) < 0) {
        if (EINTR != errno) {
            fail("ppoll");
        }
        return;
    }
    for (int i = 0; i < nports; i++) {
        if (0 != fds[i + 1].revents) {
            read_port(i);
        }
    }
    if (0 != fds[0].revents) {
        if (NULL == fgets(line, sizeof line, stdin)) {
            exit(0);
        }
        obey(line);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc - 2 > PORTS_MAX) {
        fprintf(stderr, "usage: tapswitch MICROSECONDS PID... (at most %d)\n", PORTS_MAX);
        return 2;
    }
    delay = strtoull(argv[1], NULL, 10) * 1000;
    nports = argc - 2;
    ports = calloc((size_t) nports, sizeof *ports);
    if (NULL == ports) {
        fail("memory");
    }
    (void) prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0);
    setvbuf(stdin, NULL, _IONBF, 0); /* a line that waits in a buffer is not seen by ppoll() */
    for (int i = 0; i < nports; i++) {
        open_port(&ports[i], argv[i + 2]);
    }
    puts("ready");
    fflush(stdout);
    for (;;) {
        wait_for(deliver());
    }
}
