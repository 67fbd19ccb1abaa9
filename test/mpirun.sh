# SPDX-License-Identifier: BSD-3-Clause
#
# How this machine's mpirun is called, whichever Open MPI it is. To be sourced by bash after a build's test/build.env;
# exports what every run on one host needs, and sets
#   oversubscribe    an array: the arguments that allow more ranks than cores
# shellcheck shell=bash disable=SC2034

# As root (a container, a chroot) mpirun wants to be told twice that this is meant; 5 and 6 ask by another name.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
# More ranks than cores: no rank that waits keeps a core from another.
export OMPI_MCA_mpi_yield_when_idle=1
# One host: messages go through its shared memory, whatever network it has.
export OMPI_MCA_pml=ob1
case ${GPUSYM_OMPI_MAJOR:?} in
    4)
        oversubscribe=(--oversubscribe)
        # Copying out of another process needs a permission that containers do not give; and it writes past the end of a
        # host buffer that is too short for its message.
        export OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none
        show_load_errors=1
        ;;
    *)
        oversubscribe=(--map-by slot:oversubscribe) # by which a rank is its local rank; else 6 numbers them otherwise
        export OMPI_MCA_btl=self,sm OMPI_MCA_smsc=^cma # as above
        show_load_errors=all
        ;;
esac
# A component that cannot be opened is told of, not passed over in silence.
export OMPI_MCA_mca_base_component_show_load_errors=$show_load_errors
