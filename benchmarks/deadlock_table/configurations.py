"""The 18 configurations of Table 1 in Pan et al., "Comprehensive Deadlock Prevention for GPU
Collective Communication" (EuroSys '25), with the deadlock ratios of the paper and of a reference.

The names of the rows are ours: S and F have the single-queue model, Y and Z have synchronization; S
and Y have groups of 3D parallelism, F and Z free groups. S1 is one group alone.

The reference is another simulation of the same rules. Where a row cannot be exactly the paper's:
- F: the paper prints ten times the probability of disorder. Its ratios would then be ten times as
  high, too: SingleQueue has a closed formula (`formula`).
- F, Z: the authors' list of free groups is not published. free_64.txt is a reconstruction: 32
  groups, 28 of 3 GPUs and 4 of 8, half of them with 400 collectives, each GPU in 1 to 5 groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FREE_64 = Path(__file__).with_name("free_64.txt")
# The paper has 32,000 rounds. Its ratios scatter as if there were fewer: they appear to repeat.
PAPER_ROUNDS, PAPER_ROUNDS_LARGE = 3200, 640
PAPER_STAGES = 4  # of the smaller one of its two worlds of 3D parallelism
NIGHTLY = ("Y5",)  # the rows that take minutes


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group: the number of its collectives, and its GPUs in ascending order."""

    count: int
    gpus: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class World:
    """GPUs in groups.

    Attributes:
        name: how a table names it.
        groups: its groups, in the order of their ids; of one stage.
        stages: copies of the groups, which have no GPU in common.
    """

    name: str
    groups: tuple[Group, ...]
    stages: int = 1

    def text(self) -> str:
        """Return it as pccl-deadlock-table reads it."""
        lines = (" ".join(map(str, (group.count, *group.gpus))) for group in self.groups)
        return "\n".join(lines) + "\n"


def three_d(tp: int, dp: int, pp: int, times: int = 1) -> World:
    """Return the groups of 3D parallelism: 400 and 1,200 collectives, `times` as many.

    A stage of the pipeline has `dp` tensor-parallel groups of `tp` GPUs that follow each other, and
    then `tp` data-parallel groups, of the first GPUs of these, of the second ones, and so on.
    """
    tensor = (range(tp * i, tp * (i + 1)) for i in range(dp))
    data = (range(i, tp * dp, tp) for i in range(tp))
    groups = [Group(count=400 * times, gpus=tuple(gpus)) for gpus in tensor]
    groups += [Group(count=1200 * times, gpus=tuple(gpus)) for gpus in data]
    name = f"3D {tp}, {dp}, {pp}" + (f", {times} times the calls" if times > 1 else "")
    return World(name=name, groups=tuple(groups), stages=pp)


def free(gpus: int, times: int = 1) -> World:
    """Return the free groups of 64 GPUs, or of 128: then each group has two GPUs more."""
    groups = []
    for number, line in enumerate(FREE_64.read_text().splitlines()):
        count, *members = map(int, line.split())
        if gpus == 128:
            members += [64 + 2 * number, 65 + 2 * number]
        groups.append(Group(count=count * times, gpus=tuple(members)))
    name = f"free {gpus}" + (f", {times} times the calls" if times > 1 else "")
    return World(name=name, groups=tuple(groups))


def single(gpus: int, count: int) -> World:
    """Return one group."""
    group = Group(count=count, gpus=tuple(range(gpus)))
    return World(name=f"one group of {gpus}, {count} calls", groups=(group,))


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A row of the table. All ratios are percentages of rounds.

    Attributes:
        name: our name of the row.
        disorder: probability that a GPU skips the next call of its list.
        synchronization: probability that a turn is a synchronization; None: single-queue model.
        paper: the ratio of the paper.
        reference: the ratio of the reference, and its standard error.
        exact: the ratio of the reference by the exact check, where it differs and is known.
    """

    name: str
    world: World
    disorder: float
    paper: float
    reference: tuple[float, float]
    synchronization: float | None = None
    exact: float | None = None

    @property
    def paper_rounds(self) -> int:
        """The number of independent rounds behind the ratio of the paper."""
        return PAPER_ROUNDS_LARGE if self.world.stages > PAPER_STAGES else PAPER_ROUNDS

    def formula(self) -> float:
        """Return the ratio of the single-queue model in closed form.

        It is a deadlock if a member of a group skips any of its calls but the last, which has only
        calls of other groups after it. That all members skip the same one is too rare to count.
        """
        skips = sum(len(group.gpus) * (group.count - 1) for group in self.world.groups)
        return 100 * (1 - (1 - self.disorder) ** (skips * self.world.stages))


_SMALL, _SMALL_TWICE, _LARGE = three_d(4, 4, 4), three_d(4, 4, 4, times=2), three_d(8, 6, 64)
_FREE, _FREE_TWICE, _WIDE = free(64), free(64, times=2), free(128)

# Name, world, disorder, synchronization, paper, reference with its standard error, exact check.
_ROWS = (
    ("S1", single(8, 161), 1e-5, None, 1.21, (1.32, 0.06), None),
    ("S2", _SMALL, 1e-7, None, 1.10, (1.04, 0.06), None),
    ("S3", _SMALL, 1e-6, None, 9.97, (9.43, 0.16), None),
    ("S4", _LARGE, 1e-9, None, 0.47, (0.45, 0.04), None),
    ("S5", _LARGE, 1e-8, None, 3.59, (4.68, 0.12), None),
    ("F1", _FREE, 1e-7, None, 0.98, (1.02, 0.06), None),
    ("F2", _FREE, 1e-6, None, 9.45, (9.28, 0.16), None),
    ("F3", _WIDE, 1e-7, None, 1.72, (1.50, 0.07), None),
    ("Y1", _SMALL, 2e-3, 4e-3, 0.68, (0.62, 0.07), 0.49),
    ("Y2", _SMALL, 4e-3, 4e-3, 1.38, (1.43, 0.10), 1.08),
    ("Y3", _SMALL, 4e-3, 2e-3, 0.32, (0.25, 0.04), 0.24),
    ("Y4", _SMALL_TWICE, 4e-3, 4e-3, 2.56, (2.88, 0.24), None),
    ("Y5", _LARGE, 8e-4, 8e-4, 1.56, (0.69, 0.15), None),
    ("Z1", _FREE, 4e-6, 4e-5, 0.81, (1.05, 0.13), None),
    ("Z2", _FREE, 4e-5, 4e-5, 1.16, (1.09, 0.13), None),
    ("Z3", _FREE, 4e-5, 8e-5, 6.56, (6.41, 0.26), 0.0),
    ("Z4", _FREE_TWICE, 4e-5, 4e-5, 6.94, (6.33, 0.35), None),
    ("Z5", _WIDE, 4e-5, 4e-5, 2.34, (2.31, 0.22), None),
)

ALL = tuple(
    Configuration(
        name=name,
        world=world,
        disorder=disorder,
        synchronization=synchronization,
        paper=paper,
        reference=reference,
        exact=exact,
    )
    for name, world, disorder, synchronization, paper, reference, exact in _ROWS
)
