"""Compiles CUDA C to PTX for old drivers and cards: compile.py FOLDER-OF-NVRTC SOURCE PTX."""

import ctypes
import hashlib
import pathlib
import re
import sys

# The oldest card, and the oldest release of PTX, that the source needs nothing newer than. A driver reads
# every release up to its own: 7.4 came with CUDA 11.4, the oldest that the crate serves.
ARCHITECTURE = "compute_60"
RELEASE = "7.4"

folder, source, ptx = map(pathlib.Path, sys.argv[1:])
nvrtc = ctypes.CDLL(str(next(folder.rglob("libnvrtc.so.11*"))))
text = source.read_bytes()
program = ctypes.c_void_p()
create = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None)
if create != 0:
    sys.exit(f"nvrtcCreateProgram failed: {create}")
options = (ctypes.c_char_p * 2)(f"--gpu-architecture={ARCHITECTURE}".encode(), b"--std=c++14")
compiled = nvrtc.nvrtcCompileProgram(program, len(options), options)


def fetched(what):
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, buffer)
    return buffer.value.decode()


if compiled != 0:
    sys.exit(fetched("ProgramLog"))
made = re.sub(r"^\.version .*$", f".version {RELEASE}", fetched("PTX"), count=1, flags=re.M)
digest = hashlib.sha256(text).hexdigest()
ptx.write_text(f"// Made by tools/ptx/build; sha256 of {source.name}: {digest}\n{made}")
