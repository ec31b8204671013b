"""The hash kernel under compute-sanitizer: it touches no byte outside its tensors.

Without --child this is the step. It starts itself as a child under the tool twice. The second child
hashes more bytes than its memory has, and the tool must find that.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from check import end, expect, report, skip
from kernels import Kernels, Workspace, host_hash

FOUND = 9  # exit status of the tool if it has found something
CHILD_LIMIT_S = 45
SIZES = (1, 7, 8, 255, 256, 257, 16383, 16384, 16385, 40000, 1 << 20)


def cudart() -> ctypes.CDLL:
    """Load CUDA's runtime without torch, which would take most of the time under the tool."""
    spec = importlib.util.find_spec("torch")
    packages = Path(spec.origin).parents[1] if spec and spec.origin else Path()
    places = [*packages.glob("nvidia/*/lib/libcudart.so.*"), "libcudart.so.13", "libcudart.so"]
    for place in places:
        try:
            return ctypes.CDLL(str(place))
        except OSError:
            continue
    raise RuntimeError("there is no libcudart.so")


class Memory:
    """Memory of the device, exactly as large as it is said, so that the tool knows its end."""

    def __init__(self, runtime: ctypes.CDLL) -> None:
        self._runtime = runtime

    def _call(self, name: str, *arguments: object) -> None:
        if status := getattr(self._runtime, name)(*arguments):
            raise RuntimeError(f"{name}: status {status}")

    def allocate(self, size: int, function: str = "cudaMalloc") -> int:
        address = ctypes.c_void_p()
        self._call(function, ctypes.byref(address), ctypes.c_size_t(size))
        return address.value or 0

    def fill(self, address: int, data: bytes) -> None:
        size = ctypes.c_size_t(len(data))
        self._call("cudaMemcpy", ctypes.c_void_p(address), data, size, ctypes.c_int(1))

    def free(self, address: int) -> None:
        self._call("cudaFree", ctypes.c_void_p(address))

    def wait(self) -> None:
        self._call("cudaDeviceSynchronize")


def child(*, beyond: int) -> None:
    """Hash memory of every size and alignment, and `beyond` bytes more than it has."""
    kernels = Kernels()
    memory = Memory(cudart())
    size = kernels.workspace_bytes(1)
    workspace = Workspace(memory.allocate(size), memory.allocate(size, "cudaMallocHost"))
    for size in SIZES:
        data = os.urandom(size)
        for offset in range(9):
            place = memory.allocate(offset + size)
            memory.fill(place, bytes(offset) + data)
            kernels.hash([(place + offset, size + beyond)], workspace, 0)
            memory.wait()
            value = host_hash(ctypes.cast(data, ctypes.c_void_p).value or 0, size)
            found = kernels.values(workspace, 1)
            if beyond == 0 and found != [value]:
                sys.exit(f"{size} bytes at offset {offset}: another hash than the CPU's")
            memory.free(place)
    print("all hashes compared", flush=True)


def run_child(*options: str) -> tuple[int, str]:
    tool = ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", str(FOUND)]
    command = [*tool, sys.executable, __file__, "--child", *options]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=CHILD_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return -1, f"longer than {CHILD_LIMIT_S} s"
    return done.returncode, done.stdout + done.stderr


def main() -> None:
    if "--child" in sys.argv:
        child(beyond=8 if "--beyond" in sys.argv else 0)
        return
    if shutil.which("compute-sanitizer") is None:
        skip("no compute-sanitizer")
    status, output = run_child()
    print(output[-2000:])
    if "not supported" in output:
        skip("compute-sanitizer does not work on this machine")
    expect(status == 0 and "all hashes compared" in output, f"memcheck ends with status {status}")
    status, output = run_child("--beyond")
    expect(status == FOUND, f"memcheck does not see a load behind the end (status {status})")
    report(clean=len(SIZES) * 9, control="found" if status == FOUND else "missed")
    end()


if __name__ == "__main__":
    main()
