/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What every face (a component of Open MPI) does with the common library: registers its parameters, opens and closes it.
 */
#ifndef GPUSYM_OMPI_FACE_H
#define GPUSYM_OMPI_FACE_H

#include "mca/common/gpusym/gpusym.h"
#include "mca/common/ompi/ompi_compat.h"

/*
 * Registers the library's parameters, opal_common_gpusym_<name>, each with the synonym coll_gpusym_<name>; to be called from
 * mca_register_component_params. The first face of a process registers them, with its values, until Open MPI forgets all
 * parameters; for others it does nothing. Open MPI error code; OPAL_ERR_NOT_AVAILABLE: the face is built for another Open
 * MPI, and must not be used.
 */
int gpusym_face_register(void);

/* Opens the library with these parameters, for a face: from mca_open_component, with mca_close_component calling
 * gpusym_close(). framework: the framework's own verbosity, which counts too. Open MPI error code. */
int gpusym_face_open(int framework);

#endif
