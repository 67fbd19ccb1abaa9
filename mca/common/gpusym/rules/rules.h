/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Files of rules (tuning/rules.h): where they are, and the library that reads them, libgpusym_rules.so, which is opened
 * when there is one to read.  docs/algorithms.md says what stands in them.  Any thread.
 */
#ifndef GPUSYM_COMMON_RULES_RULES_H
#define GPUSYM_COMMON_RULES_RULES_H

#include "tuning/rules.h"

/* Rules of a file, at most: an index of them takes up to 4 bytes times the square of their number. */
#define GPUSYM_RULES_MAX 512u

/* Reads a file. The caller frees what it has by gpusym_rules_file_free(). False: why names the file, the line or the
 * place in it, and what is wrong. */
typedef bool gpusym_rules_reader_t(const char *path, gpusym_rules_file_t *file, char *why, size_t size);
gpusym_rules_reader_t gpusym_rules_read;

/* Writes the name of the file, in a folder of them, for so many ranks on GPUs of a compute capability (10 * major +
 * minor; 0: the simulator): "sm90-4.json", "sim-4.json". */
void gpusym_rules_name(char *name, size_t size, int cc, uint32_t nranks);

/* Returns the rules for a communicator of so many ranks of one host, on GPUs of that name and compute capability.
 * where: a file; a folder, in which the file of that name need not be; "": the folder of the installation, which need
 * not be, either; "none": none. The file is read again if it
 * has changed. Returns NULL if there are none, and then in why "" or, if the file cannot be read, the reason. */
gpusym_rules_t *gpusym_rules_open(const char *where, uint32_t nranks, const char *gpu, int cc, char *why, size_t size);

#endif
