"""KvikIO as a peer: reads into GPU memory on command, and tells how many seconds each read took.

    kvikio_reader.py FILE BYTES [OFFSETS]

One line on standard output for each on standard input:

    use KIND THREADS THRESHOLD buffered|direct    how to read from now on
    open | read | close

KIND: `mmap` and `cufile` are those classes' `pread`, all reads in flight at once; `mmap-read` is the
blocking `Mmap.read`, one after another; `gds` is `cufile` by the library of that name, the others go by
KvikIO's own reads. `read` tells the seconds. Without OFFSETS it reads BYTES in order;
with it (a file of numbers, one a line) it reads BYTES at each of them. Opening is not timed: a mapping
must not be there while the file is dropped from the page cache.
"""

import sys
import time

import cupy
import kvikio
import kvikio.defaults

path, size = sys.argv[1], int(sys.argv[2])
offsets = [int(line) for line in open(sys.argv[3])] if len(sys.argv) > 3 else [0]
memory = cupy.empty(size * len(offsets), dtype=cupy.uint8)
parts = [memory[n * size : (n + 1) * size] for n in range(len(offsets))]


def use(kind, threads, threshold, direct):
    by_library = kind == "gds"
    mode = kvikio.CompatMode.OFF if by_library else kvikio.CompatMode.ON
    kvikio.defaults.set("compat_mode", mode)
    kvikio.defaults.set("num_threads", int(threads))
    kvikio.defaults.set("gds_threshold", int(threshold))
    kvikio.defaults.set("auto_direct_io_read", direct == "direct")


def pread(source):
    futures = [source.pread(part, size, at) for part, at in zip(parts, offsets)]
    return sum(future.get() for future in futures)


def read_one_by_one(source):
    return sum(source.read(part, size, at) for part, at in zip(parts, offsets))


READERS = {
    "mmap": (kvikio.Mmap, pread),
    "mmap-read": (kvikio.Mmap, read_one_by_one),
    "cufile": (kvikio.CuFile, pread),
    "gds": (kvikio.CuFile, pread),
}


def seconds(read, source):
    cupy.cuda.Device().synchronize()
    begun = time.perf_counter()
    got = read(source)
    cupy.cuda.Device().synchronize()
    took = time.perf_counter() - begun
    assert got == size * len(offsets), f"{got} of {size * len(offsets)} bytes"
    return took


source = None
for line in sys.stdin:
    command, *words = line.split()
    answer = command
    if command == "use":
        kind, *rest = words
        (opener, reader) = READERS[kind]
        use(kind, *rest)
    elif command == "open":
        source = opener(path, "r")
    elif command == "read":
        answer = seconds(reader, source)
    elif command == "close":
        source.close()
        source = None
    print(answer, flush=True)
