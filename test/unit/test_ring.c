/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Unit tests of mca/common/gpusym/p2p/ring.c: both sides in one process, by turns; then two processes, by fork; then
 * memory that has been overwritten.  A seed as the argument repeats a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mca/common/gpusym/p2p/ring.h"
#include "test/unit/random.h"

enum { ROOM = 4096, MOST = GPUSYM_RING_MOST(ROOM), BYTES = GPUSYM_RING_HEAD + ROOM, PROCESS_RECORDS = 200000 };

static void *memory;
static gpusym_ring_writer_t writer;
static gpusym_ring_reader_t reader;
static uint32_t written, read_back; /* records */

static int open_ring(void **state)
{
    (void) state;
    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(MAP_FAILED != memory);
    gpusym_ring_open_reader(&reader, memory, ROOM);
    assert_false(gpusym_ring_is_written(&reader));
    gpusym_ring_open_writer(&writer, memory, ROOM);
    assert_true(gpusym_ring_is_written(&reader));
    written = read_back = 0;
    return 0;
}

static int close_ring(void **state)
{
    (void) state;
    return munmap(memory, BYTES);
}

/* The bytes of a record, by its number alone: so the reader knows them too. */
static uint32_t bytes_of(uint32_t number)
{
    const uint64_t mixed = (seed + number) * 0x9e3779b97f4a7c15ull >> 20;
    return (uint32_t) (0 == mixed % 8 ? mixed / 8 % (MOST + 1) : mixed / 8 % 100);
}

static int write_record(uint32_t number)
{
    unsigned char data[MOST];
    const uint32_t bytes = bytes_of(number);
    memset(data, (int) (number & 0xff), bytes);
    return gpusym_ring_write(&writer, number, data, bytes);
}

/* Whether the next record is there, and is record `number`. */
static bool read_record(uint32_t number)
{
    uint32_t tag, bytes;
    void *data;
    const int rc = gpusym_ring_read(&reader, &tag, &data, &bytes);
    if (0 == rc) {
        return false;
    }
    assert_int_equal(rc, 1);
    assert_int_equal(tag, number);
    assert_int_equal(bytes, bytes_of(number));
    assert_int_equal((uintptr_t) data % 16, 0);
    for (uint32_t i = 0; i < bytes; i++) {
        assert_int_equal(((unsigned char *) data)[i], number & 0xff);
    }
    gpusym_ring_end_read(&reader);
    return true;
}

static void records_come_in_their_order(void **state)
{
    unsigned full = 0;

    (void) state;
    for (unsigned round = 0; round < 20000; round++) {
        for (uint64_t n = next_random() % 20; n > 0; n--) {
            const int rc = write_record(written);
            assert_true(0 == rc || 1 == rc);
            written += (unsigned) rc;
            full += 0 == rc;
        }
        for (uint64_t n = next_random() % 20; n > 0 && read_record(read_back); n--) {
            read_back++;
        }
    }
    while (read_record(read_back)) {
        read_back++;
    }
    assert_int_equal(read_back, written);
    assert_true(full > 100 && written > 20000);
}

/* Wherever the last record ended. */
static void the_longest_record_fits_into_an_empty_ring(void **state)
{
    static const unsigned char data[MOST];
    uint32_t tag, bytes;
    void *p;

    (void) state;
    for (unsigned i = 0; i < 3 * ROOM / GPUSYM_RING_RECORD; i++) {
        assert_int_equal(gpusym_ring_write(&writer, i, data, MOST), 1);
        assert_int_equal(gpusym_ring_read(&reader, &tag, &p, &bytes), 1);
        assert_int_equal(bytes, MOST);
        gpusym_ring_end_read(&reader);
        assert_int_equal(gpusym_ring_write(&writer, i, data, 0), 1);
        assert_int_equal(gpusym_ring_read(&reader, &tag, &p, &bytes), 1);
        assert_int_equal(bytes, 0);
        gpusym_ring_end_read(&reader);
    }
}

static void two_processes_share_a_ring(void **state)
{
    int status;

    (void) state;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (0 == pid) {
        for (uint32_t i = 0; i < PROCESS_RECORDS;) {
            const int rc = write_record(i);
            if (rc < 0) {
                _exit(1);
            }
            i += (uint32_t) rc;
            if (0 == rc) {
                sched_yield();
            }
        }
        _exit(0);
    }
    for (uint32_t i = 0; i < PROCESS_RECORDS;) {
        if (read_record(i)) {
            i++;
        } else {
            sched_yield();
        }
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && 0 == WEXITSTATUS(status));
}

/* Overwrites one word of the ring at a time, with all kinds of values: each is found, or leads to a record within. */
static void overwritten_memory_is_found(void **state)
{
    static const uint64_t values[] = {1, 15, 16, 64, ROOM, ROOM + 16, 0x7fffffff, 0xffffffff, 1ull << 40, ~0ull};
    unsigned char before[BYTES];
    unsigned found = 0;
    uint32_t tag, bytes;
    void *p;

    (void) state;
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(gpusym_ring_write(&writer, i, before, 40), 1);
    }
    memcpy(before, memory, BYTES);
    const gpusym_ring_writer_t writer_before = writer;
    const gpusym_ring_reader_t reader_before = reader;
    for (size_t word = 0; word < (GPUSYM_RING_HEAD + 400) / 8; word++) {
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            ((uint64_t *) memory)[word] = values[v];
            int rc = gpusym_ring_write(&writer, 0, before, MOST);
            found += GPUSYM_ERR_CORRUPT == rc;
            for (unsigned n = 0; n < 300 && 1 == (rc = gpusym_ring_read(&reader, &tag, &p, &bytes)); n++) {
                assert_true((char *) p >= (char *) memory + GPUSYM_RING_HEAD);
                assert_true((char *) p + bytes <= (char *) memory + BYTES);
                gpusym_ring_end_read(&reader);
            }
            found += GPUSYM_ERR_CORRUPT == rc;
            memcpy(memory, before, BYTES);
            writer = writer_before;
            reader = reader_before;
        }
    }
    assert_true(found > 20);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(records_come_in_their_order, open_ring, close_ring),
        cmocka_unit_test_setup_teardown(the_longest_record_fits_into_an_empty_ring, open_ring, close_ring),
        cmocka_unit_test_setup_teardown(two_processes_share_a_ring, open_ring, close_ring),
        cmocka_unit_test_setup_teardown(overwritten_memory_is_found, open_ring, close_ring),
    };
    random_start(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
