"""The machine: card, driver, versions; the library loads beside torch and shares its streams."""

from __future__ import annotations

import platform
import shutil
import subprocess

import torch
from check import end, expect, report, skip
from kernels import Kernels, host_hash
from tensors import Hasher


def main() -> None:
    report(python=platform.python_version(), torch=torch.__version__, libc=platform.libc_ver()[1])
    if not torch.cuda.is_available():
        skip("torch sees no GPU")
    properties = torch.cuda.get_device_properties(0)
    report(
        card=properties.name.replace(" ", "_"),
        processors=properties.multi_processor_count,
        memory_gib=round(properties.total_memory / 2**30, 1),
        l2_mib=properties.L2_cache_size >> 20,
    )
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        found = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
        report(driver=found.stdout.strip())
    for tool in ("nvcc", "g++", "cmake", "ninja", "compute-sanitizer", "cuobjdump"):
        report(**{tool: "yes" if shutil.which(tool) else "no"})

    from pccl_backend import _C

    state = _C.cuda_library()
    expect(state == "loaded", f"the package says of its library: {state}")
    kernels = Kernels()
    expect(kernels.device_count() == torch.cuda.device_count(), "both runtimes see the devices")
    # A stream of torch's runtime passes to the library: its work keeps the order of the stream.
    hasher = Hasher(kernels)
    side = torch.cuda.Stream()
    data = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        # A kernel of about 0.1 s: a hash that did not wait for the stream would read zeros.
        torch.cuda._sleep(200_000_000)
        data.fill_(7)
        found = hasher(data)
    sevens = torch.full((1 << 20,), 7, dtype=torch.uint8)
    expect(found == [host_hash(sevens.data_ptr(), sevens.nbytes)], "the stream's order is kept")
    expect(torch.cuda.current_device() == 0, "the current device is as before")
    end()


if __name__ == "__main__":
    main()
