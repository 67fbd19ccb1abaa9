/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The one limit on time that tests have: what takes longer hangs.
 */
#ifndef TEST_HANG_H
#define TEST_HANG_H

#include <stdlib.h>

/* A minute, times what test/run.sh multiplies its time limits by. In seconds. */
static inline unsigned hang_s(void)
{
    const char *slow = getenv("GPUSYM_TEST_SLOW");
    const unsigned long factor = NULL == slow ? 1 : strtoul(slow, NULL, 10);
    return 60 * (unsigned) (factor > 0 ? factor : 1);
}

#endif
