"""The picture of a probe: the rate by number of streams, with the knee marked."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from pccl_backend.probe.advice import MeasuredPath, knee_of

__all__ = ["draw"]

LINES = (  # Okabe and Ito: safe for colour blindness
    ("there", "there", "#0072b2", "-"),
    ("back", "back", "#d55e00", "-"),
    ("both_there", "there, both at once", "#0072b2", "--"),
    ("both_back", "back, both at once", "#d55e00", "--"),
)


def draw(measured: MeasuredPath, name: str, path: Path) -> None:
    """Draw the picture.

    Args:
        measured: the measured path.
        name: name of the other host.
        path: the file to write.

    Raises:
        OSError: the file cannot be written.
    """
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    try:
        streams = [row.streams for row in measured.rows]
        for field, label, colour, style in LINES:
            rates = [getattr(row, field) for row in measured.rows]
            if None not in rates:
                axes.plot(streams, rates, style, color=colour, marker="o", label=label)
        knee = knee_of(measured.rows)
        axes.axvline(knee.streams, color="black", linestyle=":", linewidth=1)
        axes.annotate(
            f" knee: {knee.streams}", (knee.streams, 0.03), xycoords=("data", "axes fraction")
        )
        axes.set_xscale("log", base=2)
        axes.set_xticks(streams, [str(count) for count in streams])
        axes.set_ylim(bottom=0)
        axes.set_xlabel("TCP streams")
        axes.set_ylabel("Mbit/s")
        axes.set_title(f"To {name}, {measured.rtt * 1e3:.3g} ms RTT")
        axes.grid(alpha=0.25)
        axes.legend()
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(path, dpi=120)
    finally:
        plt.close(figure)
