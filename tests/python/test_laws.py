"""The trainers do what their algorithms say, compared with one process that has them written out.

A small model travels as one message, which all peers add in rank order: then the bits are equal. A
larger one goes round the ring, whose order of addition differs from block to block.
"""

from __future__ import annotations

import pytest
import work_laws as work
from conftest import MakeWorld

SMALL, LARGE = 8, 192


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("name", work.SETTINGS)
def test_a_small_model_has_the_bits_of_its_law(
    make_world: MakeWorld, name: str, world: int
) -> None:
    for differences in make_world(world).run(work.follows_its_law, name, "float32", 8, SMALL):
        assert differences == [0.0] * 8
