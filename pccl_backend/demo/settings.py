"""Size and duration of the demo and the steps of its events, in one value."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["FULL", "SHORT", "Settings"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that orchestrator and peers must agree on; sent to the peers as JSON.

    Attributes:
        layers, width, heads, context: the model's shape; `context` is in characters.
        batch: sequences per inner step.
        inner_lr, inner_steps: AdamW's learning rate, and its steps between two outer steps.
        outer_lr, outer_momentum: parameters of the outer SGD. The usual momentum of 0.9 pays only
            in longer runs.
        outer_steps: the run has at least this number of outer steps.
        steps_together: after the join it has at least this number of outer steps.
        kill_step: outer step in whose all-reduce a peer is killed.
        join_step: the newcomer joins when the others have done this number of outer steps.
        text_bytes_max: bytes of the standard library to read.
        timeout_s: timeout of the process group.
        deadline_s: limit for the whole demo; exceeding it is an error.
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
        """Return the settings as one line of JSON."""
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

# For tests: every event of the full demo in half a minute; on a slow machine, in minutes.
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
