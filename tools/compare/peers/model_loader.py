"""Loaders of models as peers: loads safetensors files into GPU memory on command, and tells how many seconds that took.

    model_loader.py PEER SETTINGS FILE...

PEER: safetensors, fastsafetensors, instanttensor or runai; `plain` reads into host memory and needs no package,
for tests of this protocol. SETTINGS: KEY=VALUE,..., those of the peer below; keys in capitals are put into the
environment before the peer is imported, with a comma for each +. device=cpu tries a peer without a GPU, where it
can do without. The first line on standard output is `ready`, with the peer's version,
once everything is imported and the GPU's context is there, or `absent` and why. From then on one line for each on
standard input:

    load     every tensor into device memory: the seconds until all are there and the device has nothing under way
    check    compares every tensor, as it lies there, with its bytes in the files, by a parser of its own

What is timed: opening the files, their headers, all memory, and reading. What is not: imports and the context
before, and closing afterwards (what `load` gives may need the loader open). Each load is to have a process of its own.
"""

import concurrent.futures
import importlib.metadata
import json
import math
import mmap
import os
import sys
import time
import warnings

peer, settings, *files = sys.argv[1:]
settings = dict(pair.split("=", 1) for pair in settings.split(",") if pair)
DEVICE = settings.pop("device", "cuda:0")
for key in [key for key in settings if key.isupper()]:
    os.environ[key] = settings.pop(key).replace("+", ",")
# What stays open until the process ends, since tensors may lie in it.
keep = []


def setting(name, kind, default):
    return kind(settings.pop(name)) if name in settings else default


# Each gives a function that loads; imports and what is known of the machine before are no part of a load.


def safetensors():
    """backend=mmap|pread (of 0.8 and later), threads=N: so many files at once, call=load_file|safe_open."""
    from safetensors import safe_open
    from safetensors.torch import load_file

    threads = setting("threads", int, 1)
    call = setting("call", str, "load_file")
    backend = {"backend": settings.pop("backend")} if "backend" in settings else {}

    def by_name(file):
        with safe_open(file, framework="pt", device=DEVICE, **backend) as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}

    def whole(file):
        return load_file(file, device=DEVICE, **backend)

    one = {"load_file": whole, "safe_open": by_name}[call]

    def load():
        if threads == 1:
            parts = [one(file) for file in files]
        else:
            with concurrent.futures.ThreadPoolExecutor(threads) as pool:
                parts = list(pool.map(one, files))
        return {name: tensor for part in parts for name, tensor in part.items()}

    return load


def fastsafetensors():
    """threads=N, buffer_kib=N: pinned memory of all threads, inflight=0|1: tensors are made while reads go on."""
    from fastsafetensors import SafeTensorsFileLoader

    threads = setting("threads", int, 16)
    buffer_kib = setting("buffer_kib", int, 16 * 1024)
    inflight = bool(setting("inflight", int, 0))

    def load():
        # Without cuFile, which has no driver to read by here.
        loader = SafeTensorsFileLoader(
            None, device=DEVICE, nogds=True, bbuf_size_kb=buffer_kib, max_threads=threads
        )
        loader.add_filenames({0: files})
        buffers = loader.copy_files_to_device(allow_inflight=inflight)
        keep.extend([loader, buffers])
        return {name: buffers.get_tensor(name) for name in loader.get_keys()}

    return load


def instanttensor():
    """backend, chunk_kib, concurrency, io_depth, buffer_mib: as safe_open has them; copy=0|1: tensors of their own."""
    from instanttensor import Backend, safe_open

    scale = {"chunk_kib": ("chunk_size", 1 << 10), "buffer_mib": ("buffer_size", 1 << 20)}
    options = {"copy": bool(setting("copy", int, 1))}
    if "backend" in settings:
        options["backend"] = Backend[settings.pop("backend")]
    for key in ["chunk_kib", "concurrency", "io_depth", "buffer_mib"]:
        if key in settings:
            name, unit = scale.get(key, (key, 1))
            options[name] = int(settings.pop(key)) * unit

    def load():
        opened = safe_open(list(files), framework="pt", device=DEVICE, **options)
        opened.__enter__()
        keep.append(opened)
        return dict(opened.tensors())

    return load


def runai():
    """Its settings are those of its environment, RUNAI_STREAMER_*."""
    from runai_model_streamer import SafetensorsStreamer

    def load():
        streamer = SafetensorsStreamer()
        streamer.__enter__()
        keep.append(streamer)
        streamer.stream_files(list(files), device=DEVICE)
        return dict(streamer.get_tensors())

    return load


def plain():
    """Bytes in host memory."""

    def load():
        loaded = {}
        for file in files:
            with open(file, "rb") as opened:
                size = int.from_bytes(opened.read(8), "little")
                entries = json.loads(opened.read(size))
                entries.pop("__metadata__", None)
                for name, entry in entries.items():
                    start, end = entry["data_offsets"]
                    opened.seek(8 + size + start)
                    loaded[name] = opened.read(end - start)
        return loaded

    return load


# The function that makes it ready, and the package whose version is told.
PEERS = {
    "safetensors": (safetensors, "safetensors"),
    "fastsafetensors": (fastsafetensors, "fastsafetensors"),
    "instanttensor": (instanttensor, "instanttensor"),
    "runai": (runai, "runai-model-streamer"),
    "plain": (plain, None),
}


def synchronise():
    if DEVICE != "cpu" and peer != "plain":
        torch.cuda.synchronize()


def tensors_of(file):
    """Name, shape and bytes of each tensor, by nothing but the format."""
    with open(file, "rb") as opened:
        bytes_ = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    start = 8 + int.from_bytes(bytes_[:8], "little")
    for name, entry in json.loads(bytes(bytes_[8:start])).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, entry["shape"], bytes_[start + begin : start + end]


def is_same(tensor, shape, expected):
    if isinstance(tensor, bytes):
        return tensor == bytes(expected)
    if list(tensor.shape) != shape or str(tensor.device) != DEVICE:
        return False
    if math.prod(shape) == 0:
        return True
    import numpy

    got = tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy()
    return numpy.array_equal(got, numpy.frombuffer(expected, dtype=numpy.uint8))


def difference(loaded):
    """What is not as it is in the files; nothing where all is."""
    names = set()
    for file in files:
        for name, shape, expected in tensors_of(file):
            names.add(name)
            if name not in loaded:
                return f"{name} is missing"
            if not is_same(loaded[name], shape, expected):
                return f"{name} is not what {file} has"
    more = sorted(loaded.keys() - names)
    return f"{more[0]} is in no file" if more else None


def main():
    global torch
    # What peers print is no answer: it goes where their messages do.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer):
        print(answer, file=answers, flush=True)

    make_ready, package = PEERS[peer]
    try:
        if peer != "plain":
            import torch

            warnings.simplefilter("ignore")
        load = make_ready()
        version = importlib.metadata.version(package) if package else "-"
    except ImportError as error:
        why = " ".join(str(error).split())
        say(f"absent {why}; install it, or name its folder in PYTHONPATH")
        return
    if settings:
        say(f"absent {peer} has no settings {', '.join(settings)}")
        return
    if peer != "plain" and DEVICE != "cpu":
        if not torch.cuda.is_available():
            say("absent PyTorch sees no GPU")
            return
        # The context, and the first use of the allocator and of a copy.
        torch.ones(1 << 20, dtype=torch.uint8).to(DEVICE).sum().item()
    synchronise()
    say(f"ready {version}")
    loaded = {}
    for line in sys.stdin:
        command = line.strip()
        if command == "load":
            begun = time.perf_counter()
            loaded = load()
            synchronise()
            say(time.perf_counter() - begun)
        elif command == "check":
            wrong = difference(loaded)
            say(f"wrong {wrong}" if wrong else f"same {len(loaded)}")
        else:
            say(f"wrong {command} is no command")
    # Without the interpreter's end, which closes what stands open in any order.
    os._exit(0)


main()
