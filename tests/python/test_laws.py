"""The trainers do what their algorithms say, compared with one process that has them written out.

A small model travels as one message, which all peers add in rank order: then the bits are equal. A
larger one goes round the ring, whose order of addition differs from block to block. The library
reports the way that it took (work_laws.averages_go_round_the_ring): the sums of both orders may
have the same bits, which depend on the machine.

The tests compare the global parameters, in float32. In a model of 16-bit parameters, a last bit
of a global decides now and then which neighbour its local copy rounds to. The peers agree
on it, because they hold the same globals; the reference, whose sums have other last bits, then
trains from another point. So two correct runs drift apart by the roundings of 16 bits (1e-4 after
50 outer steps), and there the law is about one outer step: from the same globals and momentum,
each of them agrees to 1e-6.
"""

from __future__ import annotations

import pytest
import work_laws as work
from conftest import MakeWorld
from work_laws import LARGE, SMALL


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("name", work.SETTINGS)
def test_a_small_model_has_the_bits_of_its_law(
    make_world: MakeWorld, name: str, world: int
) -> None:
    for differences in make_world(world).run(work.follows_its_law, name, "float32", 8, SMALL):
        assert differences == [0.0] * 8


@pytest.mark.parametrize("name", ["blocking", "carry", "streaming"])
@pytest.mark.parametrize("dtypes", ["mixed", "bfloat16"])
def test_a_small_model_of_narrow_parameters_has_the_bits_of_its_law(
    make_world: MakeWorld, name: str, dtypes: str
) -> None:
    for differences in make_world(3).run(work.follows_its_law, name, dtypes, 8, SMALL):
        assert differences == [0.0] * 8


@pytest.mark.parametrize("name", work.SETTINGS)
def test_a_model_that_goes_round_the_ring_follows_its_law(make_world: MakeWorld, name: str) -> None:
    for differences in make_world(3).run(
        work.follows_its_law, name, "float32", 52, LARGE, timeout=100.0
    ):
        assert differences[4] <= 1e-6
        assert differences[49] <= 1e-5


@pytest.mark.parametrize("dtypes", ["mixed", "bfloat16"])
def test_narrow_parameters_follow_their_law_round_the_ring(
    make_world: MakeWorld, dtypes: str
) -> None:
    for differences in make_world(3).run(
        work.follows_its_law_step_by_step, dtypes, 52, LARGE, timeout=100.0
    ):
        assert max(differences) <= 1e-6


def test_ddp_has_the_bits_of_torchs_over_gloo(make_world: MakeWorld) -> None:
    assert make_world(2).run(work.ddp_follows_gloo) == [True, True]
