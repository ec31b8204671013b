"""The trainings of benchmarks/quality.py, in short: formats change the bits alike on all peers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import MakeWorld
from world import Master

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import quality

PEERS = 3
OUTER_STEPS = 5
INNER_STEPS = 5  # between two of them
DDP_STEPS = 10


def trainings(urls: dict[str, str]) -> dict[str, str]:
    """Run in each process: train with each setting, twice if it is quantized; return digests."""
    quality.EVERY = INNER_STEPS
    settings, digests = quality.QUANTIZED.settings, {}
    for key, url in urls.items():
        setting = settings[key.removesuffix(" again")]
        steps = DDP_STEPS if setting.ddp else OUTER_STEPS
        row = quality.train(f"{url}?min_peers={PEERS}", key, setting, 1, steps)
        assert 1 < row.loss < 4.6, f"{key}: it learns nothing, or the loss is no number"
        digests[key] = row.digest
    return digests


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_formats_change_the_bits_alike_on_all_peers(make_world: MakeWorld, master: Master) -> None:
    names = list(quality.QUANTIZED.settings)
    names += [f"{n} again" for n, setting in quality.QUANTIZED.settings.items() if setting.bits]
    urls = {name: master.url() for name in names}
    first, *others = make_world(PEERS).run(trainings, urls, setup="nothing", timeout=240)
    assert all(other == first for other in others), "peers have other bits"
    once = [first[name] for name in quality.QUANTIZED.settings]
    assert len(set(once)) == len(once), "a setting changes nothing"
    for name in names:
        assert first[name] == first[name.removesuffix(" again")], f"{name}: other bits"
