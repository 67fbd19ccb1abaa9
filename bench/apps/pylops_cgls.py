# SPDX-License-Identifier: BSD-3-Clause
"""pylops_cgls.py [--size N] [--nccl]: a least-squares inversion with PyLops-MPI, for bench/apps/pylops.sh.

Every rank has data of its own of one model that all ranks have, as the shots of a seismic survey: weights of each
element, and the derivative. Each iteration of CGLS adds up the gradient, as long as the model, and scalars over all
ranks.
Prints "T ms", the time of an iteration, and "right" if the model comes back within 1e-3.
"""
import argparse
import time

import cupy
import pylops
import pylops_mpi
from mpi4py import MPI

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=1 << 20)
parser.add_argument("--nccl", action="store_true")
options = parser.parse_args()
comm = MPI.COMM_WORLD
cupy.cuda.Device(comm.Split_type(MPI.COMM_TYPE_SHARED).rank % cupy.cuda.runtime.getDeviceCount()).use()
ways = {}
if options.nccl:
    from pylops_mpi.utils._nccl import initialize_nccl_comm

    ways["base_comm_nccl"] = initialize_nccl_comm()

size = options.size
weights = 1 + cupy.random.RandomState(comm.rank + 1).rand(size, dtype="f")
shot = pylops.VStack([pylops.Diagonal(weights, dtype="float32"), pylops.FirstDerivative(size, dtype="float32")])
survey = pylops_mpi.MPIVStack([shot])


def model():
    everywhere = pylops_mpi.Partition.BROADCAST
    return pylops_mpi.DistributedArray(size, partition=everywhere, engine="cupy", dtype="float32", **ways)


truth = model()
truth[:] = cupy.sin(cupy.arange(size, dtype="f") / 50)
data = survey @ truth


def solve(iterations):
    start = model()
    start[:] = 0
    cupy.cuda.Device().synchronize()
    comm.Barrier()
    began = time.perf_counter()
    result = pylops_mpi.cgls(survey, data, x0=start, niter=iterations, tol=0)
    cupy.cuda.Device().synchronize()
    return result, comm.allreduce(time.perf_counter() - began, MPI.MAX)


solve(3)
(found, _, done, *_), seconds = solve(20)
worst = comm.allreduce(float(cupy.abs(found.local_array - truth.local_array).max()), MPI.MAX)
if comm.rank == 0:
    print(f"{seconds / done * 1e3:.4f} ms")
    print("right" if worst < 1e-3 else f"wrong: an element differs by {worst}")
