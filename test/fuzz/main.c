/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The main function of fuzz harnesses where no compiler has libFuzzer: runs the inputs of a corpus, then changed ones.
 * Nothing tells it which were new, so it finds less. It takes libFuzzer's options -runs=N, -max_total_time=SECONDS,
 * -seed=N and -max_len=N, and ignores its others.
 */
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>
#include <time.h>

#include "test/fuzz/fuzz.h"

enum { INPUTS = 4096 };

typedef struct {
    uint8_t *data;
    size_t size;
} input_t;

static input_t corpus[INPUTS];
static size_t inputs, max_len = 4096;
static uint64_t state = 1;

/* splitmix64 */
static uint64_t next_random(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static size_t below(size_t n)
{
    return 0 == n ? 0 : (size_t) (next_random() % n);
}

static void read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    input_t in = {.data = malloc(1 << 20)};

    if (NULL == f || NULL == in.data || INPUTS == inputs) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(2);
    }
    in.size = fread(in.data, 1, 1 << 20, f);
    fclose(f);
    corpus[inputs++] = in;
}

static void read_path(const char *path)
{
    struct stat what;
    char name[PATH_MAX];
    DIR *dir = opendir(path);

    if (NULL == dir) {
        read_file(path);
        return;
    }
    for (struct dirent *e; NULL != (e = readdir(dir));) {
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (0 == stat(name, &what) && S_ISREG(what.st_mode)) {
            read_file(name);
        }
    }
    closedir(dir);
}

/* One change, in place; returns the size. */
static size_t change(uint8_t *data, size_t size)
{
    static const uint64_t odd[] = {0,      1,          0x7f,       0x80,      0xff,      0x7fff,
                                   0xffff, 0x7fffffff, 0xffffffff, INT64_MAX, UINT64_MAX};
    const size_t at = below(size), room = max_len - size, bytes = (size_t) 1 << below(4);
    const input_t *other = &corpus[below(inputs)];

    switch (below(7)) {
    case 0:
        data[at] ^= (uint8_t) (0 == size ? 0 : 1u << below(8));
        return size;
    case 1:
        data[at] = (uint8_t) next_random();
        return size;
    case 2: /* a number */
        if (bytes <= size - at) {
            const uint64_t value = odd[below(sizeof odd / sizeof odd[0])] + below(3) - 1;
            memcpy(data + at, &value, bytes);
        }
        return size;
    case 3: /* less */
    {
        const size_t n = below(size - at);
        memmove(data + at, data + at + n, size - at - n);
        return size - n;
    }
    case 4: /* the same once more */
        if (bytes <= room && bytes <= size - at) {
            memmove(data + at + bytes, data + at, size - at);
            return size + bytes;
        }
        return size;
    case 5: /* a part of another */
        if (other->size > 0) {
            const size_t from = below(other->size), most = other->size - from;
            const size_t n = 1 + below(most < max_len - at ? most : max_len - at);
            memcpy(data + at, other->data + from, n <= max_len - at ? n : 0);
            return at + n > size ? at + n : size;
        }
        return size;
    default:
        return below(size + 1);
    }
}

int main(int argc, char **argv)
{
    uint64_t runs = UINT64_MAX;
    time_t end = 0;
    uint8_t *data;

    for (int i = 1; i < argc; i++) {
        unsigned long long n;
        if (1 == sscanf(argv[i], "-runs=%llu", &n)) {
            runs = n;
        } else if (1 == sscanf(argv[i], "-seed=%llu", &n)) {
            state = n;
        } else if (1 == sscanf(argv[i], "-max_len=%llu", &n)) {
            max_len = (size_t) n;
        } else if (1 == sscanf(argv[i], "-max_total_time=%llu", &n)) {
            end = time(NULL) + (time_t) n;
        } else if ('-' != argv[i][0]) {
            read_path(argv[i]);
        }
    }
    if (0 == inputs) {
        corpus[inputs++] = (input_t){calloc(1, 16), 16};
    }
    for (size_t i = 0; i < inputs; i++) {
        LLVMFuzzerTestOneInput(corpus[i].data, corpus[i].size);
    }
    uint64_t done = 0;
    for (; done < runs && (0 == end || time(NULL) < end); done++) {
        const input_t *in = &corpus[below(inputs)];
        size_t size = in->size < max_len ? in->size : max_len;
        data = calloc(1, max_len + 8);
        if (NULL == data) {
            return 2;
        }
        memcpy(data, in->data, size);
        for (size_t k = 1 + below(8); k > 0; k--) {
            size = change(data, size);
        }
        uint8_t *exact = malloc(0 == size ? 1 : size); /* so that reading past its end is seen */
        if (NULL == exact) {
            return 2;
        }
        memcpy(exact, data, size);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
        free(data);
    }
    printf("Done %llu runs\n", (unsigned long long) done);
    return 0;
}
