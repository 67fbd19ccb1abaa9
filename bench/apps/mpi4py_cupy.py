# SPDX-License-Identifier: BSD-3-Clause
"""mpi4py_cupy.py cupy|numpy: mpi4py's calls on GPU arrays, for bench/apps/mpi4py.sh.

cupy: CuPy arrays are passed as they are. numpy: each call copies to a NumPy array, calls MPI, and copies back, as a
program does where MPI knows nothing of GPUs. Prints lines "CALL BYTES US": the median of 9 batches of the slowest rank,
for the bytes of a rank's array. Every element of the result is checked, before the batches and behind them.
"""
import statistics
import sys
import time

import cupy
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
cupy.cuda.Device(comm.Split_type(MPI.COMM_TYPE_SHARED).rank % cupy.cuda.runtime.getDeviceCount()).use()
on_gpu = {"cupy": True, "numpy": False}[sys.argv[1]]


def synchronize():
    cupy.cuda.get_current_stream().synchronize()


def allreduce(x, y):
    comm.Allreduce(x, y)


def sendrecv(x, y):
    comm.Sendrecv(x, (rank + 1) % ranks, recvbuf=y, source=(rank - 1) % ranks)


def alltoall(x, y):
    comm.Alltoall(x, y)


def content(of, count):
    """What rank `of` passes: whole numbers, so that sums are exact."""
    return cupy.arange(count, dtype="f") % 1021 + of


def expected(call, count):
    if call is allreduce:
        return content(0, count) * ranks + sum(range(ranks))
    if call is sendrecv:
        return content((rank - 1) % ranks, count)
    block = count // ranks
    return cupy.concatenate([content(of, count)[rank * block : (rank + 1) * block] for of in range(ranks)])


def measure(call, count):
    x, y = content(rank, count), cupy.full(count, numpy.nan, dtype="f")
    x_host, y_host = numpy.empty(count, dtype="f"), numpy.empty(count, dtype="f")

    def once():
        synchronize()  # MPI knows nothing of the stream
        if on_gpu:
            call(x, y)
        else:
            x.get(out=x_host)
            call(x_host, y_host)
            y.set(y_host)
            synchronize()

    def check():
        wrong = int((y != expected(call, count)).sum())
        if comm.allreduce(wrong):
            sys.exit(f"{call.__name__} of {x.nbytes} bytes: {wrong} wrong elements on rank {rank}")

    once()
    check()
    y.fill(numpy.nan)
    start = time.perf_counter()
    for _ in range(5):
        once()
    calls = comm.bcast(int(min(200, max(3, 0.05 / (time.perf_counter() - start)))))
    batches = []
    for _ in range(9):
        comm.Barrier()
        start = time.perf_counter()
        for _ in range(calls):
            once()
        batches.append((time.perf_counter() - start) / calls * 1e6)
    check()
    return comm.allreduce(statistics.median(batches), MPI.MAX)


for function in (allreduce, sendrecv, alltoall):
    for size in (8, 65536, 1048576, 67108864):
        elements = max(size // 4 // ranks, 1) * ranks if function is alltoall else size // 4
        us = measure(function, elements)
        if rank == 0:
            print(function.__name__.capitalize(), size, f"{us:.2f}", flush=True)
