/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The bytes of a datatype's elements as pieces that a copy engine copies at once: rows of one width, at one distance.
 *
 * The pieces are read from the description of the datatype that Open MPI's convertor uses. A description is short where
 * the type is regular (a vector is one entry, a 3-D subarray a loop around one), so nothing is kept for the next call;
 * what a kernel needs of an irregular one is kept (nodes.h).
 *
 * Descriptions are no interface of Open MPI's. The first call compares, for some datatypes, what is read with the
 * runs that the convertor tells of itself. If they differ, all pieces are the convertor's runs, which takes longer; a
 * line at verbosity 2 says so.
 */
#ifndef GPUSYM_OMPI_PIECES_H
#define GPUSYM_OMPI_PIECES_H

#include "ompi_config.h" /* always first */

#include <stdbool.h>
#include <stddef.h>

#include "ompi/datatype/ompi_datatype.h"

/* rows x width bytes. Rows overlap each other neither in memory nor when packed. */
typedef struct {
    ptrdiff_t off; /* of the first row in memory, from the buffer's address */
    size_t at;     /* of the first row in packed memory */
    size_t width;  /* of a row */
    size_t rows;
    size_t pitch; /* from row to row in memory */
    size_t step;  /* from row to row in packed memory: width, unless the order is free */
} gpusym_piece_t;

/* 0: go on; another value ends the walk, which returns it. */
typedef int gpusym_piece_visit_t(void *arg, const gpusym_piece_t *piece);

/*
 * Visits the bytes [from, to) of the packed form of count elements, each once; to is at most their size.
 *
 * free_order false: in packed order, which is that of the typemap; true: in any order, by fewer pieces where elements
 * have several runs each. Pieces that continue each other are one. Allocates nothing.
 */
int gpusym_pieces_visit(size_t count, const struct ompi_datatype_t *dtype, size_t from, size_t to, bool free_order,
                        gpusym_piece_visit_t *visit, void *arg);

/* Whether the description of a committed datatype, read as gpusym_pieces_visit does, has the convertor's runs. Visits
 * every byte: for small datatypes. */
bool gpusym_pieces_confirmed(const struct ompi_datatype_t *dtype);

#endif
