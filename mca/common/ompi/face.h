/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The use of the common library by a face (a component of Open MPI): register its parameters, open it, close it.
 */
#ifndef GPUSYM_OMPI_FACE_H
#define GPUSYM_OMPI_FACE_H

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/ompi/ompi_compat.h"

/*
 * Registers the library's parameters, opal_common_gpusym_<name>, each with the synonym coll_gpusym_<name>.  Call it
 * from mca_register_component_params.  The first face of a process registers the parameters; further calls have no
 * effect until Open MPI discards all parameters.  Returns an Open MPI error code.  OPAL_ERR_NOT_AVAILABLE: the face is
 * built for a different Open MPI, and must not be used.
 */
int gpusym_face_register(void);

/* Opens the library with these parameters, for a face.  Call it from mca_open_component, and gpusym_close() from
 * mca_close_component.  framework: verbosity of the framework; the higher verbosity applies.  Returns an Open MPI error
 * code. */
int gpusym_face_open(int framework);

#endif
