"""Exchange: the all-reduce of one outer step, with the weights that travel in it.

The mean of pseudo-gradients is ``sum(w * delta) / sum(w)``. Each peer scales its own by its weight,
and the all-reduce adds. Four rows travel before the pseudo-gradient, with one slot for each rank:

1. the weight;
2. 1 if the peer's pseudo-gradient was not finite, plus twice the number of its base;
3. its inner steps;
4. the number of its settings.

Each peer fills its own slots only, so the sums of the rows are the values of all peers.

If a peer is lost while the all-reduce runs, the finished parts keep its contribution
(`on_loss="keep"`). So parts of the result differ in their contributors, and each part is divided by
the weights of its own contributors. The rows come first: an all-reduce finishes from the front, so
no part has a contributor whose weight is missing.

A quantized message (`quantize`) has no rows, because a weight must not be rounded. The rows travel
in a separate all-reduce, posted before the message. In a fifth row each peer writes 1. If a peer is
lost, parts of the message may include its contribution while the rows lack its weight. Then the
mean weight of the others replaces it, which is exact if all weights are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import torch
import torch.distributed as dist

import pccl_backend as pccl
from pccl_backend import _C
from pccl_backend.quantization import Format, quantize
from pccl_backend.trainers._signals import HeldSignals

__all__ = ["HEAD", "Exchange", "Message", "OnLoss", "Outcome", "Share", "ended_before_call"]

OnLoss = Literal["keep"] | None

ROWS = 4  # in a message; rows that travel separately have a fifth
HEAD = 1 << 10  # elements that a message keeps free before its body, for the rows


class Message(Protocol):
    """The data of an outer step.

    Attributes:
        counters: int64; the peers take the greatest value of each element; may be empty.
    """

    counters: torch.Tensor

    def body(self, fragment: int, *, head: int) -> torch.Tensor:
        """Return the message of a fragment, with `head` elements before it."""

    def read_counters(self, *, out: torch.Tensor) -> None:
        """Copy this peer's counters."""

    def flip_counters(self, flat: torch.Tensor) -> None:
        """Order copies of unsigned counters like signed numbers, or back."""


@dataclass(frozen=True)
class Share:
    """This peer's contribution to an outer step, without its tensor.

    Attributes:
        weight: its weight in the mean; 0 if it does not count.
        sick: whether its pseudo-gradient was not finite.
        inner_steps: inner steps since it last sent this fragment.
    """

    weight: float
    sick: bool
    inner_steps: int


@dataclass(frozen=True)
class Outcome:
    """The result of an outer step; equal on all peers.

    Attributes:
        contributors: number of peers whose pseudo-gradients count.
        excluded: names of the peers whose pseudo-gradients were not finite.
        inner_steps: inner steps of a contributor, on average.
        quantized: whether the message was quantized; a small one is not.
        setting: the number of the settings that most peers have. If two settings have equally many
            peers, the lowest rank decides. 0: the settings may differ.
        unlike: names of the peers with other settings.
        refused: whether `unlike` names this peer. Only this attribute may differ between peers.
        sound: names of the peers that contributed.
        bases: names of all peers, with the numbers of their bases.
    """

    contributors: int = 0
    excluded: tuple[str, ...] = ()
    inner_steps: int = 0
    quantized: bool = False
    setting: int = 0
    unlike: tuple[str, ...] = ()
    refused: bool = False
    sound: frozenset[str] = frozenset()
    bases: tuple[tuple[str, int], ...] = ()


def ended_before_call(work: object) -> bool:
    """Return whether an operation was settled for all members before this member called it."""
    return isinstance(work, dist.Work) and _C.ended_before_call(work)


class Gathering:
    """An all-reduce that gathers one row of each peer.

    Args:
        row: this peer's row.
        counts: whether the row has content.
        names: the names of all peers.
        own_name: this peer's name.
        post: begins the sum of a tensor over all peers.
    """

    def __init__(
        self,
        row: torch.Tensor,
        *,
        counts: bool,
        names: list[str],
        own_name: str,
        post: Callable[[torch.Tensor], dist.Work],
    ) -> None:
        self._names, self._own_name = names, own_name
        self._shape = (len(names), len(row))
        self._flat = torch.zeros(len(names) * (len(row) + 1), dtype=row.dtype, device="cpu")
        rows, flags = self._parts()
        place = names.index(own_name)
        rows[place].copy_(row)
        flags[place] = counts
        self._work = post(self._flat)

    def wait(self) -> None:
        self._work.wait()

    def others(self) -> dict[str, torch.Tensor]:
        """Return the rows of the other peers that have content, by the peers' names."""
        rows, flags = self._parts()
        return {
            name: row
            for name, row, flag in zip(self._names, rows, flags.tolist(), strict=True)
            if flag and name != self._own_name
        }

    def _parts(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rows, then the flags. Flags travel last: a peer's flag implies its row."""
        size, count = self._shape
        return self._flat[: size * count].view(self._shape), self._flat[size * count :]


class Exchange:
    """The all-reduces of one trainer, one after another.

    Args:
        message: the data to average.
        strict: whether the mean is useless on all peers if settings differ.
    """

    def __init__(
        self,
        message: Message,
        *,
        signals: HeldSignals,
        tag: str,
        on_loss: OnLoss,
        strict: bool = False,
        quantize: Format | None = None,
    ) -> None:
        self._message = message
        self._strict = strict
        self._quantize = quantize
        self._rows = torch.empty(0, device="cpu")  # a view of the message, or a separate tensor
        self._apart: dist.Work | None = None  # the all-reduce of separate rows
        self._quantized = False
        self._signals = signals
        self._tag = tag
        self._on_loss = on_loss
        self._names: list[str] = []
        self._own_name = ""
        self._counters = torch.empty_like(message.counters)
        self._counting: dist.Work | None = None
        self.work: dist.Work | None = None

    def post(
        self,
        fragment: int,
        share: Share,
        *,
        settings: int,
        base: int,
        group: dist.ProcessGroup | None,
    ) -> None:
        """Begin the all-reduce of a scaled pseudo-gradient, which is lent until the work has ended.

        Args:
            fragment: number of the fragment.
            share: this peer's contribution.
            settings: a number that represents the settings of the trainer, below 2**24; 0 if they
                may differ; negative if this peer follows the others where they differ.
            base: a number that represents the unshared tensors, below 2**23; 0 if nothing is
                compared.
            group: the process group; None: the default one.
        """
        if fragment == 0 and len(self._counters):
            self._settle_counters(group)
        info = pccl.run_info(group)
        self._names = [member.peer for member in info.members]
        self._own_name = info.peer
        size, rank = len(self._names), info.rank
        if size * ROWS > HEAD:
            raise ValueError(f"the group has {size} peers; a trainer serves {HEAD // ROWS}")
        message = self._message.body(fragment, head=self._head)
        others = (share.sick + 2 * base, share.inner_steps, settings)
        numbers = [share.weight, *map(float, others)]
        if self._quantize is None:
            self._rows = message[: self._head]
        else:
            numbers.append(1.0)
            self._rows = torch.empty(size * len(numbers), dtype=message.dtype, device="cpu")
        self._rows.view(-1, size).zero_()[:, rank] = torch.tensor(
            numbers, dtype=message.dtype, device="cpu"
        )
        apart = self._quantize is not None
        self._quantized = apart and size > 1 and message.nbytes > info.one_shot_bytes
        post = self._sum(group)
        with quantize(None):  # a `quantize` block of the program must not round the weights
            if apart:
                self._apart = post(self._rows)
            self.work = post(message, quantize=self._quantize)

    def gather(
        self, row: torch.Tensor, *, counts: bool, group: dist.ProcessGroup | None
    ) -> Gathering:
        """Begin to send a row to all peers of the last outer step, whose all-reduces have ended."""
        with quantize(None):
            return Gathering(
                row,
                counts=counts,
                names=self._names,
                own_name=self._own_name,
                post=self._sum(group),
            )

    def _sum(self, group: dist.ProcessGroup | None) -> Callable[..., dist.Work]:
        return partial(
            pccl.all_reduce,
            op="sum",
            tag=self._tag,
            group=group,
            on_loss=self._on_loss,
            async_op=True,
        )

    def wait(self) -> None:
        """Wait for the all-reduces. If only the rows fail, no weight is known, and all count alike.

        Raises:
            PcclError: the message failed, and is as it was.
        """
        assert self.work is not None, "it was posted"
        if self._apart is not None:
            try:
                self._apart.wait()
            except pccl.PcclError:
                self._rows.zero_()
            self._apart = None
        self.work.wait()

    def read(self, fragment: int) -> Outcome:
        """Divide the sum by the weights, part by part. The work must have succeeded.

        If settings differ and the exchange is strict, the sum stays undivided and the counters
        unchanged.
        """
        assert self.work is not None, "it was posted"
        message = self._message.body(fragment, head=self._head)
        parts = () if self._on_loss is None else pccl.contributors(self.work)
        weights, sick, steps, settings = self._numbers(
            {name for part in parts for name in part.peers}
        )
        setting, unlike = _unlike(dict(zip(self._names, settings, strict=True)))
        if unlike and self._strict:
            self.work = None
            return Outcome(setting=setting, unlike=unlike, refused=self._own_name in unlike)
        weight_of = dict(zip(self._names, weights, strict=True))
        if self._on_loss is None:  # all elements have the same contributors
            _divide(message[self._head :], sum(weights))
        for part in parts:
            body = message[max(part.start, self._head) : part.stop]
            _divide(body, sum(weight_of[name] for name in part.peers))
        self.work = None
        if fragment == 0:
            self._message.flip_counters(self._counters)
            self._message.counters.copy_(self._counters)
        count = sum(weight > 0 for weight in weights)
        counted = [n for n, weight in zip(steps, weights, strict=True) if weight > 0]
        return Outcome(
            contributors=count,
            excluded=tuple(n for n, ill in zip(self._names, sick, strict=True) if ill % 2),
            inner_steps=round(sum(counted) / max(count, 1)),
            quantized=self._quantized,
            setting=setting,
            unlike=unlike,
            refused=self._own_name in unlike,
            sound=frozenset(name for name, weight in weight_of.items() if weight > 0),
            bases=tuple((n, int(ill) // 2) for n, ill in zip(self._names, sick, strict=True)),
        )

    def _numbers(self, contributors: set[str]) -> list[list[float]]:
        """Return the rows, with a substitute for each unknown weight of a contributor."""
        rows: list[list[float]] = self._rows.view(-1, len(self._names)).tolist()
        if self._quantize is None:
            return rows
        *numbers, known = rows
        weights = [w for w, is_known in zip(numbers[0], known, strict=True) if is_known]
        other = sum(weights) / len(weights) if weights else 1.0
        numbers[0] = [
            (weight if is_known else other) if name in contributors else 0.0
            for name, weight, is_known in zip(self._names, numbers[0], known, strict=True)
        ]
        return numbers

    @property
    def _head(self) -> int:
        """Number of elements of the rows within the message."""
        return 0 if self._quantize is not None else len(self._names) * ROWS

    def forget(self) -> None:
        """Drop the all-reduces, after one has failed."""
        self.work = self._counting = self._apart = None

    def _settle_counters(self, group: dist.ProcessGroup | None) -> None:
        """Take the greatest of each integer buffer over all peers."""
        if self._counting is None:
            self._message.read_counters(out=self._counters)
            self._message.flip_counters(self._counters)
            self._counting = pccl.all_reduce(
                self._counters, op="max", tag=self._tag, group=group, async_op=True
            )
        wait: Callable[[], object] = partial(self._counting.wait)
        self._signals.wait(wait)
        self._counting = None


def _unlike(settings: Mapping[str, float]) -> tuple[int, tuple[str, ...]]:
    """Return the most frequent number, and the names of peers with a different one.

    Peers with 0 accept any number. A negative number is the number of a peer that follows the
    others: its opposite counts only if no peer has a positive number.
    """
    sure = [number for number in settings.values() if number > 0]
    numbers = sure or [-number for number in settings.values() if number]
    if not numbers:
        return 0, ()
    ((most, _),) = Counter(numbers).most_common(1)
    unlike = (name for name, number in settings.items() if number and abs(number) != most)
    return int(most), tuple(unlike)


def _divide(part: torch.Tensor, total: float) -> None:
    if total == 0:
        part.zero_()
    elif total != 1:
        part.div_(total)
