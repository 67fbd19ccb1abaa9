/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Attributes of MPI's objects: see attributes.h.
 */
#include "mca/common/ompi/attributes.h"

#include <string.h>

#include "ompi/communicator/communicator.h"

static int copy_nothing(void *object, int key, void *state, void *attribute, void *copy, int *flag)
{
    (void) object;
    (void) key;
    (void) state;
    (void) attribute;
    (void) copy;
    *flag = 0;
    return MPI_SUCCESS;
}

/* Open MPI's type for copying functions differs between versions, by a parameter that this one does not read. */
bool gpusym_attribute_key(ompi_attribute_type_t what, ompi_attribute_fn_ptr_union_t delete, int *key)
{
    int (*const copying)(void *, int, void *, void *, void *, int *) = copy_nothing;
    ompi_attribute_fn_ptr_union_t copy;

    if (MPI_KEYVAL_INVALID != *key) {
        return true; /* an earlier attempt made it */
    }
    memcpy(&copy, &copying, sizeof copying);
    return MPI_SUCCESS == ompi_attr_create_keyval(what, copy, delete, key, NULL, 0, NULL);
}

bool gpusym_attribute_at_finalize(int (*call)(MPI_Comm, int, void *, void *), int *key)
{
    const ompi_attribute_fn_ptr_union_t delete = {.attr_communicator_delete_fn = call};
    struct ompi_communicator_t *self = &ompi_mpi_comm_self.comm;

    if (!gpusym_attribute_key(COMM_ATTR, delete, key) ||
        MPI_SUCCESS != ompi_attr_set_c(COMM_ATTR, self, &self->c_keyhash, *key, NULL, false)) {
        return false;
    }
    (void) ompi_attr_free_keyval(COMM_ATTR, key, false); /* it goes with the attribute */
    return true;
}
