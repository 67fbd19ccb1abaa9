/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Hints for the compiler's sanitizers; no effect in a build without them.
 */
#ifndef GPUSYM_SANITIZERS_H
#define GPUSYM_SANITIZERS_H

#ifdef __has_feature /* clang; gcc defines the macros itself */
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer) && !defined(__SANITIZE_THREAD__)
#define __SANITIZE_THREAD__ 1
#endif
#endif

/* Forbid, and permit again, access to mapped memory. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define GPUSYM_POISON(at, size) ASAN_POISON_MEMORY_REGION(at, size)
#define GPUSYM_UNPOISON(at, size) ASAN_UNPOISON_MEMORY_REGION(at, size)
#else
#define GPUSYM_POISON(at, size) ((void) (at), (void) (size))
#define GPUSYM_UNPOISON(at, size) ((void) (at), (void) (size))
#endif

/*
 * Order between threads that ThreadSanitizer does not see, because libraries built without it make it: what a thread
 * did before GPUSYM_RELEASE(p) has happened for a thread that reaches GPUSYM_ACQUIRE(p) afterwards.  These only report
 * the order, and do not make it; p is an address that both threads use.
 */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define GPUSYM_RELEASE(p) __tsan_release(p)
#define GPUSYM_ACQUIRE(p) __tsan_acquire(p)
#else
#define GPUSYM_RELEASE(p) ((void) (p))
#define GPUSYM_ACQUIRE(p) ((void) (p))
#endif

/* The value of a flag that another thread may change meanwhile, by a relaxed atomic store, and whose reader needs no
 * order: an ordinary load, which a branch has in one instruction. */
#ifdef __SANITIZE_THREAD__
#define GPUSYM_FLAG(flag) __atomic_load_n(&(flag), __ATOMIC_RELAXED)
#else
#define GPUSYM_FLAG(flag) (flag)
#endif

/* Between these two, what this thread does to memory is not compared with what others do: where that is polled until it
 * has changed, or a library built without the sanitizer makes the order. */
#ifdef __SANITIZE_THREAD__
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
#define GPUSYM_IGNORE_BEGIN() AnnotateIgnoreReadsBegin(__FILE__, __LINE__)
#define GPUSYM_IGNORE_END() AnnotateIgnoreReadsEnd(__FILE__, __LINE__)
#else
#define GPUSYM_IGNORE_BEGIN() ((void) 0)
#define GPUSYM_IGNORE_END() ((void) 0)
#endif

#endif
