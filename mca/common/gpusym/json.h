/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Texts in JSON that is written without a library.
 */
#ifndef GPUSYM_COMMON_JSON_H
#define GPUSYM_COMMON_JSON_H

#include <stddef.h>

/* Room for any text whose array has that many bytes. */
#define GPUSYM_JSON_ROOM(bytes) (2 * (bytes) + 3)

/* Writes a text as a JSON string, with its quotes, into to[size]; cut where it does not fit, size at least 3. A '?'
 * stands for each byte that is no printable ASCII: a name may have any, UTF-8 or not. Never inlined: the path of a
 * traced call would be longer by it. */
static __attribute__((noinline, unused)) void gpusym_json_text(const char *text, char *to, size_t size)
{
    size_t used = 0;
    to[used++] = '"';
    for (; '\0' != *text && used + 4 < size; text++) {
        const unsigned char c = (unsigned char) *text;
        if ('"' == c || '\\' == c) {
            to[used++] = '\\';
        }
        to[used++] = (char) (c < ' ' || c > '~' ? '?' : c);
    }
    to[used++] = '"';
    to[used] = '\0';
}

#endif
