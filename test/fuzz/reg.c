/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Fuzz: registrations as a peer describes them (memory/reg.h), on a device that imports what a handle says it can. The
 * own table is the peer's.
 */
#include "mca/common/gpusym/memory/reg.c"
#include "test/fuzz/fuzz.h"

enum { ENTRIES = 4, STEPS = 64 };

static int mapped; /* imports that have not ended */

/* Memory that was imported. */
typedef struct {
    uint64_t size; /* that is mapped; 0: the device does not know */
} imported_t;

/* The first byte of a handle says what comes of it. */
static int import(gpusym_gpu_t *gpu, const gpusym_handle_t *handle, void **p)
{
    static const int results[] = {GPUSYM_SUCCESS, GPUSYM_SUCCESS, GPUSYM_ERR_UNREACHABLE, GPUSYM_ERR_NO_MEMORY};
    const int rc = results[handle->bytes[0] % 4];

    (void) gpu;
    if (GPUSYM_SUCCESS == rc) {
        imported_t *memory = malloc(sizeof *memory);
        MUST(NULL != memory);
        memory->size = (uint64_t) handle->bytes[1] << handle->bytes[2] % 56;
        *p = memory;
        mapped++;
    }
    return rc;
}

static int unimport(gpusym_gpu_t *gpu, void *p)
{
    (void) gpu;
    free(p);
    mapped--;
    return GPUSYM_SUCCESS;
}

static int range_of(const void *p, gpusym_range_t *range)
{
    const imported_t *memory = p;

    *range = (gpusym_range_t){.base = (void *) (uintptr_t) p, .size = memory->size};
    return 0 != memory->size ? GPUSYM_SUCCESS : GPUSYM_ERR_NOT_AVAILABLE;
}

static gpusym_peer_t *open_self(void)
{
    static gpusym_peer_t *self;
    gpusym_pages_id_t id;

    if (NULL == self) {
        MUST(GPUSYM_SUCCESS == gpusym_pages_open(&id) && GPUSYM_SUCCESS == gpusym_pages_peer(&id, &self));
    }
    return self;
}

/* The peer writes over an entry: anywhere, or what its owner could have written. */
static void write_entry(fuzz_input_t *in)
{
    entry_t *entry = &own_table()->entry[fuzz_number(in, 1) % ENTRIES];

    if (fuzz_number(in, 1) % 2) {
        const size_t at = fuzz_number(in, 1) % (sizeof *entry / 8) * 8;
        fuzz_take(in, (char *) entry + at, 8);
        return;
    }
    entry->generation = fuzz_number(in, fuzz_number(in, 1) % 9);
    entry->size = fuzz_number(in, fuzz_number(in, 1) % 9);
    fuzz_take(in, entry->handle.bytes, 4);
    entry->check = check_of(entry->generation, entry->size, &entry->handle);
}

/* By a key of an entry that is there, or by any. */
static void map(const gpusym_device_t *dev, gpusym_peer_t *peer, fuzz_input_t *in)
{
    const unsigned index = (unsigned) fuzz_number(in, 1) % ENTRIES;
    const bool any = fuzz_number(in, 1) % 4 == 0;
    const uint32_t key = any ? (uint32_t) fuzz_number(in, 4) : key_make(own_table()->entry[index].generation, index);
    void *base = NULL;
    uint64_t size;

    if (GPUSYM_SUCCESS == gpusym_reg_map(dev, NULL, peer, key, &base, &size)) {
        MUST(NULL != base && key_valid(key) && mapped > 0);
        MUST(size <= ((imported_t *) base)->size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const gpusym_device_t dev = {
        .name = "fuzz", .mem_import = import, .mem_unimport = unimport, .mem_range = range_of};
    gpusym_peer_t *const peer = open_self();
    fuzz_input_t in = {data, size};

    for (unsigned step = 0; step < STEPS && in.left > 0; step++) {
        switch (fuzz_number(&in, 1) % 4) {
        case 0:
            write_entry(&in);
            break;
        case 1:
            own_table()->changes = fuzz_number(&in, 8);
            break;
        case 2:
            map(&dev, peer, &in);
            break;
        default:
            (void) gpusym_reg_sweep(&dev);
        }
        MUST(mapped >= 0 && mapped <= (int) GPUSYM_REG_MAX);
    }
    gpusym_reg_close(&dev);
    MUST(0 == mapped);
    memset(own_table(), 0, sizeof(table_t));
    return 0;
}
