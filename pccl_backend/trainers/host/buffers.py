"""HostBuffers: the buffers of a leader, with access to the model's shards in all processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec

from pccl_backend.trainers.flat import Buffers, Make
from pccl_backend.trainers.host.orders import Do
from pccl_backend.trainers.layout import Layout
from pccl_backend.trainers.settings import Settings

__all__ = ["HostBuffers"]

P = ParamSpec("P")


def _ordered(
    method: Callable[Concatenate[Buffers, P], None],
) -> Callable[Concatenate[HostBuffers, P], None]:
    """Make a method of the buffers an order to all processes of the host."""

    def order(self: HostBuffers, /, *arguments: P.args, **options: P.kwargs) -> None:
        self._everywhere(self, Do(method, arguments, options))

    return order


class HostBuffers(Buffers):
    """The buffers of a host, in its leader.

    The methods below touch the model. They run in all processes of the host, and return when all
    are done. The other methods touch only the memory that the processes share. No method of
    `Buffers` may call one of the methods below, because an order within an order would run twice.

    Args:
        layout, settings, make: as for Buffers.
        everywhere: carries out an order in all processes.
    """

    def __init__(
        self,
        layout: Layout,
        settings: Settings,
        *,
        make: Make,
        everywhere: Callable[[Buffers, Do], None],
    ) -> None:
        super().__init__(layout, settings, make=make)
        self._everywhere = everywhere

    check = _ordered(Buffers.check)
    fill = _ordered(Buffers.fill)
    measure = _ordered(Buffers.measure)
    remember = _ordered(Buffers.remember)
    measure_since = _ordered(Buffers.measure_since)
    load = _ordered(Buffers.load)
    adopt = _ordered(Buffers.adopt)
    mix = _ordered(Buffers.mix)
    keep = _ordered(Buffers.keep)
    carry = _ordered(Buffers.carry)
    swap_out = _ordered(Buffers.swap_out)
    swap_in = _ordered(Buffers.swap_in)
    write_counters = _ordered(Buffers.write_counters)
