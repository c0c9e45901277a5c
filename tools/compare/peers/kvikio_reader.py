"""KvikIO as a peer: reads into GPU memory on command, and tells how many seconds each read took.

    kvikio_reader.py FILE BYTES mmap|cufile THREADS THRESHOLD buffered|direct [OFFSETS]

One line on standard output for each on standard input: `open` opens the file, `read` reads and tells the
seconds, `close` closes it. Without OFFSETS it reads BYTES in order; with it (a file of numbers, one a
line) it reads BYTES at each of them. Opening is not timed: a mapping must not be there while the file is
dropped from the page cache.
"""

import sys
import time

import cupy
import kvikio
import kvikio.defaults

path, bytes_, kind, threads, threshold, direct = sys.argv[1:7]
size = int(bytes_)
kvikio.defaults.set("num_threads", int(threads))
kvikio.defaults.set("compat_mode", kvikio.CompatMode.ON)
kvikio.defaults.set("gds_threshold", int(threshold))
kvikio.defaults.set("auto_direct_io_read", direct == "direct")
offsets = [int(line) for line in open(sys.argv[7])] if len(sys.argv) > 7 else [0]
memory = cupy.empty(size * len(offsets), dtype=cupy.uint8)
parts = [memory[n * size : (n + 1) * size] for n in range(len(offsets))]


def read(source):
    cupy.cuda.Device().synchronize()
    begun = time.perf_counter()
    if kind == "mmap":
        futures = [source.pread(part, size, at) for part, at in zip(parts, offsets)]
    else:
        futures = [source.pread(part, size, file_offset=at) for part, at in zip(parts, offsets)]
    got = sum(future.get() for future in futures)
    cupy.cuda.Device().synchronize()
    seconds = time.perf_counter() - begun
    assert got == size * len(offsets), f"{got} of {size * len(offsets)} bytes"
    return seconds


source = None
for line in sys.stdin:
    command = line.strip()
    if command == "open":
        source = kvikio.Mmap(path, "r") if kind == "mmap" else kvikio.CuFile(path, "r")
        print("opened", flush=True)
    elif command == "read":
        print(read(source), flush=True)
    elif command == "close":
        source.close()
        source = None
        print("closed", flush=True)
