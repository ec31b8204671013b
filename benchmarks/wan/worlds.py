"""One all-reduce in a world of many hosts, beside what the network allows.

    sudo .venv/bin/python benchmarks/wan/worlds.py benchmarks/wan/europe.toml

The tensor is the report's 1.073 GB divided by the scenario's `scale`, as its rates are. The limit
is that of a ring in the order of the scenario's hosts: what each host has to send, 2(N-1)/N of the
tensor, at the rate that iperf3 reaches between the two neighbours where it reaches least (64
streams, the way that the ring goes); or the 2(N-1) hops that a byte makes, where they take longer:
all that is sent can be under way at once.
pccl and Gloo take turns, each in that order; the first call of each is a pilot and not counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from all_reduce import Case, World
from lab import Lab, iperf, ping

REPORT_BYTES = 4 * 268_435_456
STREAMS = 64
IPERF_SECONDS = 4.0


def limit(lab: Lab, tensor_bytes: int) -> tuple[float, float]:
    """Return the seconds that the rates allow, and those that the hops take."""
    hosts = len(lab.hosts)
    rates, hops = [], []
    for host in range(hosts):
        neighbour = (host + 1) % hosts
        hops.append(ping(lab, host, neighbour) / 2e3)
        rate, _ = iperf(lab, host, neighbour, streams=STREAMS, seconds=IPERF_SECONDS)
        rates.append(rate)
        names = (lab.scenario["hosts"][at] for at in (host, neighbour))
        print(f"{' to '.join(names)}: {hops[-1] * 2e3:.1f} ms, {rate:.0f} Mbit/s", flush=True)
    sent = 2 * (hosts - 1) / hosts * tensor_bytes
    longest = max(
        sum(hops[(start + hop) % hosts] for hop in range(2 * (hosts - 1))) for start in range(hosts)
    )
    return sent * 8 / (min(rates) * 1e6), longest


def main() -> None:
    """Print the limit and each call."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip-gloo", action="store_true")
    options = parser.parse_args()
    lab = Lab(options.scenario)
    with lab:
        tensor_bytes = int(REPORT_BYTES / lab.scenario.get("scale", 1)) // 4 * 4
        by_rate, by_hops = limit(lab, tensor_bytes)
        print(
            f"{len(lab.hosts)} hosts, {tensor_bytes / 1e6:.1f} MB: it takes {by_rate:.2f} s at "
            f"that rate, and {by_hops:.2f} s for the distance",
            flush=True,
        )
        names = ("pccl",) if options.skip_gloo else ("pccl", "gloo")
        places = [host.inside.command() for host in lab.hosts]
        worlds = {
            name: World(
                name, len(places), places=places, address=lab.hosts[0].address, device="wan0"
            )
            for name in names
        }
        times: dict[str, list[float]] = {name: [] for name in names}
        try:
            case = Case(name="", tensor_bytes=tensor_bytes, goals={})
            for round_number in range(-1, options.rounds):
                for name, world in worlds.items():
                    seconds, _ = world.all_reduce(case)
                    if round_number >= 0:
                        times[name].append(seconds)
        finally:
            for world in worlds.values():
                world.close()
        for name, seen in times.items():
            middle = statistics.median(seen)
            print(
                f"{name}: {middle:.2f} s ({min(seen):.2f}-{max(seen):.2f}), "
                f"{max(by_rate, by_hops) / middle:.2f} of the limit"
            )
    print(lab.report)


if __name__ == "__main__":
    main()
