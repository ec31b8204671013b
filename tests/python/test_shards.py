"""The parts of the processes of a host make up the whole, once, however the model is cut."""

from __future__ import annotations

import pytest
import work_shards as work
from conftest import MakeWorld


@pytest.mark.parametrize("size", [3, 4])
def test_parts_make_up_the_whole(make_world: MakeWorld, size: int) -> None:
    make_world(size).run(work.parts, setup="nothing")
