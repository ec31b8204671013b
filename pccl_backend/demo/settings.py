"""How large the demo is, how long it takes and when what happens, in one value."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["FULL", "SHORT", "Settings"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything orchestrator and peers must agree on; travels to the peers as JSON.

    Attributes:
        layers, width, heads, context: the model's shape; `context` is in characters.
        batch: sequences per inner step.
        inner_lr, inner_steps: AdamW's learning rate, and its steps between two outer steps.
        outer_lr, outer_momentum: of the outer SGD. The usual momentum of 0.9 pays in runs longer
            than these.
        outer_steps: outer steps of the run, at least.
        steps_together: outer steps that follow the join, at least.
        kill_step: the outer step in whose all-reduce a peer is killed.
        join_step: the newcomer joins once the others have this many outer steps behind them.
        text_bytes_max: how much of the standard library is read.
        timeout_s: of the process group.
        deadline_s: of the whole demo; whatever is late then is an error.
    """

    layers: int
    width: int
    heads: int
    context: int
    batch: int
    inner_lr: float
    inner_steps: int
    outer_lr: float
    outer_momentum: float
    outer_steps: int
    steps_together: int
    kill_step: int
    join_step: int
    text_bytes_max: int
    timeout_s: float
    deadline_s: float

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is no multiple of heads {self.heads}")
        if not 0 < self.kill_step < self.join_step < self.outer_steps:
            raise ValueError(
                f"kill_step {self.kill_step}, join_step {self.join_step} and outer_steps "
                f"{self.outer_steps} must come in this order, from 1"
            )

    def to_json(self) -> str:
        """Return the settings as one line."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Settings:
        """Return the settings that `to_json` wrote."""
        return Settings(**json.loads(text))


FULL = Settings(
    layers=5,
    width=128,
    heads=4,
    context=64,
    batch=12,
    inner_lr=3e-3,
    inner_steps=20,
    outer_lr=0.7,
    outer_momentum=0.5,
    outer_steps=26,
    steps_together=8,
    kill_step=7,
    join_step=11,
    text_bytes_max=4_000_000,
    timeout_s=30,
    deadline_s=600,
)

# Every event of the full demo in half a minute, for tests; on a slow machine in minutes.
SHORT = Settings(
    layers=2,
    width=64,
    heads=2,
    context=32,
    batch=8,
    inner_lr=3e-3,
    inner_steps=10,
    outer_lr=0.7,
    outer_momentum=0.5,
    outer_steps=12,
    steps_together=4,
    kill_step=3,
    join_step=5,
    text_bytes_max=500_000,
    timeout_s=20,
    deadline_s=300,
)
