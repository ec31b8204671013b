"""One all-reduce over a wide-area network: how much of it one plain call fills.

    sudo .venv/bin/python benchmarks/wan/throughput.py benchmarks/wan/atlantic.toml --mib 256

Two hosts of a scenario (lab.py). First what iperf3 gets through, both ways at once, with so many
streams, paced and not: the most of these is the measure. Then all-reduces of pccl, nothing set: the
first call, the second and third within 100 ms of the last one's end, one after 60 s of silence; and
Gloo's. Throughput counts the bytes that each host has to send: 2(N-1)/N of the tensor.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from all_reduce import Case, World
from lab import Lab, iperf, ping

MIB = 1 << 20
STREAMS = (4, 8, 16)


def best_of_iperf(lab: Lab) -> float:
    """Return the most that gets through, in Mbit/s of the slower direction."""
    best = 0.0
    for streams in STREAMS:
        plain = min(iperf(lab, 0, 1, streams=streams, both_ways=True))
        rate = lab.way(*lab.scenario["hosts"][:2])["mbit"] * 0.95 / streams
        paced = min(iperf(lab, 0, 1, streams=streams, both_ways=True, pace_mbit=rate))
        print(
            f"iperf3, {streams:2} streams both ways: {plain:5.0f} Mbit/s, paced {paced:5.0f}",
            flush=True,
        )
        best = max(best, plain, paced)
    return best


def calls(lab: Lab, backend: str, mib: int, idle: float) -> dict[str, float]:
    """Return seconds of each call."""
    world = World(
        backend,
        len(lab.hosts),
        places=[host.inside.command() for host in lab.hosts],
        address=lab.hosts[0].address,
        device="wan0",
    )
    try:
        case = Case(name="", tensor_bytes=mib * MIB, goals={})
        times = {name: world.all_reduce(case)[0] for name in ("first", "second", "third")}
        if idle > 0:
            time.sleep(idle)  # the silence between two steps of DiLoCo
            times[f"after {idle:g} s"] = world.all_reduce(case)[0]
        return times
    finally:
        world.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--mib", type=int, default=256, help="of float32 per rank")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds of silence")
    parser.add_argument("--skip-gloo", action="store_true")
    options = parser.parse_args()
    lab = Lab(options.scenario)
    with lab:
        hosts = len(lab.hosts)
        megabits = 2 * (hosts - 1) / hosts * options.mib * MIB * 8 / 1e6
        print(f"round trip {ping(lab, 0, 1):.1f} ms", flush=True)
        best = best_of_iperf(lab)
        for backend in ("pccl",) if options.skip_gloo else ("pccl", "gloo"):
            idle = options.idle if backend == "pccl" else 0.0
            for name, seconds in calls(lab, backend, options.mib, idle).items():
                rate = megabits / seconds
                print(
                    f"{backend}, {name} call: {seconds:6.2f} s, {rate:5.0f} Mbit/s, "
                    f"{rate / best:.2f} of iperf3's best",
                    flush=True,
                )
    print(lab.report)


if __name__ == "__main__":
    main()
