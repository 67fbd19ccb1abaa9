/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the compiler's sanitizers cannot see for themselves; nothing in a build without them.
 */
#ifndef GPUSYM_SANITIZERS_H
#define GPUSYM_SANITIZERS_H

#ifdef __has_feature /* clang's way to say what gcc says by macros */
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif

/* Memory that nobody may touch though it is mapped, and that one may again. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define GPUSYM_POISON(at, size) ASAN_POISON_MEMORY_REGION(at, size)
#define GPUSYM_UNPOISON(at, size) ASAN_UNPOISON_MEMORY_REGION(at, size)
#else
#define GPUSYM_POISON(at, size) ((void) (at), (void) (size))
#define GPUSYM_UNPOISON(at, size) ((void) (at), (void) (size))
#endif

/*
 * Order between threads that is made where ThreadSanitizer does not look, in libraries built without it: what a
 * thread did before GPUSYM_RELEASE(p) is done for one that comes to GPUSYM_ACQUIRE(p) after it.  They only say so, and
 * make no order; p is an address that both know.
 */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define GPUSYM_RELEASE(p) __tsan_release(p)
#define GPUSYM_ACQUIRE(p) __tsan_acquire(p)
#else
#define GPUSYM_RELEASE(p) ((void) (p))
#define GPUSYM_ACQUIRE(p) ((void) (p))
#endif

#endif
