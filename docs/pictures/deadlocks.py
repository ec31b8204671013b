"""Draws the pictures of docs/deadlocks.md, one for each way in which collectives deadlock.

    python3 docs/pictures/deadlocks.py             # compares the files here with what it draws
    python3 docs/pictures/deadlocks.py --update    # writes them

The exit status is 1 if a file differs. Each picture has two ranks, one above the other. A filled
box is a call that is under way on its rank, an empty one a call that waits on its rank, and a
dashed one a call that the program has not made. An arrow leads to the call that a rank waits for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
BOX, GAP, LEFT, TOP, BETWEEN = 44, 14, 92, 58, 92  # lengths in pixels
UNDER_WAY, WAITS, UNCALLED = "under way", "waits", "not called"
WAIT = "wait"
# Okabe and Ito: safe for colour blindness.
COLOURS = {"A": "#0072b2", "B": "#d55e00", "C": "#009e73", "D": "#cc79a7", WAIT: "#555555"}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Something in the row of a rank: a call, or the wait of the program."""

    what: str
    state: str = UNDER_WAY


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture.

    Attributes:
        ranks: the places of each rank, in the order of its program.
        slots: places that the rank has for calls that are under way; 0: it needs none.
    """

    name: str
    title: str
    caption: str
    ranks: tuple[tuple[Place, ...], tuple[Place, ...]]
    slots: int = 0


def calls(under_way: str = "", waiting: str = "", uncalled: str = "") -> tuple[Place, ...]:
    """Return the places of a rank. An underscore is the wait of its program."""
    states = ((UNDER_WAY, under_way), (WAITS, waiting), (UNCALLED, uncalled))
    return tuple(
        Place(what=WAIT if letter == "_" else letter, state=state)
        for state, letters in states
        for letter in letters
    )


PICTURES = (
    Picture(
        name="single_queue",
        title="A single queue",
        caption="One call at a time is under way: A waits for the other A, and B for the other B.",
        ranks=(calls("A", "B"), calls("B", "A")),
        slots=1,
    ),
    Picture(
        name="few_slots",
        title="Too few slots",
        caption="Two calls at a time are under way, and the ranks have begun different ones.",
        ranks=(calls("AB", "CD"), calls("CD", "AB")),
        slots=2,
    ),
    Picture(
        name="waits",
        title="Waits between the calls",
        caption="Each program waits for its first call before it makes the second one.",
        ranks=(calls("A_", "", "B"), calls("B_", "", "A")),
    ),
)


def _x(place: int) -> int:
    return LEFT + place * (BOX + GAP)


def _y(rank: int) -> int:
    return TOP + rank * (BOX + BETWEEN)


def _box(rank: int, number: int, place: Place) -> list[str]:
    x, y, colour = _x(number), _y(rank), COLOURS[place.what]
    if place.what == WAIT:
        middle = x + BOX // 2
        return [
            f'<rect x="{middle - 4}" y="{y - 6}" width="8" height="{BOX + 12}" fill="{colour}"/>',
            f'<text x="{middle}" y="{y - 12}" class="small" fill="{colour}">wait()</text>',
        ]
    filled = place.state == UNDER_WAY
    dashes = ' stroke-dasharray="5 4"' if place.state == UNCALLED else ""
    return [
        f'<rect x="{x}" y="{y}" width="{BOX}" height="{BOX}" rx="6" stroke="{colour}" '
        f'stroke-width="2" fill="{colour if filled else "white"}"{dashes}/>',
        f'<text x="{x + BOX // 2}" y="{y + BOX // 2 + 6}" class="call" '
        f'fill="{"white" if filled else colour}">{place.what}</text>',
    ]


def _slots(rank: int, slots: int) -> list[str]:
    if slots == 0:
        return []
    x, y, width = _x(0) - 7, _y(rank) - 7, slots * (BOX + GAP) - GAP + 14
    return [
        f'<rect x="{x}" y="{y}" width="{width}" height="{BOX + 14}" rx="9" fill="none" '
        'stroke="#555555" stroke-width="1.5"/>'
    ]


def _arrows(ranks: Sequence[Sequence[Place]]) -> list[str]:
    """Each call that is under way waits for the same call of the other rank."""
    lines = []
    for rank, places in enumerate(ranks):
        others = [place.what for place in ranks[1 - rank]]
        for number, place in enumerate(places):
            if place.what == WAIT or place.state != UNDER_WAY:
                continue
            down = rank == 0
            from_y = _y(0) + BOX + 8 if down else _y(1) - 8
            to_y = _y(1) - 12 if down else _y(0) + BOX + 12
            from_x, to_x = _x(number) + BOX // 2, _x(others.index(place.what)) + BOX // 2
            lines.append(
                f'<line x1="{from_x}" y1="{from_y}" x2="{to_x}" y2="{to_y}" '
                f'stroke="{COLOURS[place.what]}" stroke-width="2" '
                f'marker-end="url(#head-{place.what})"/>'
            )
    return lines


def _arrow_head(name: str) -> str:
    return (
        f'<marker id="head-{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{COLOURS[name]}"/>'
        "</marker>"
    )


def draw(picture: Picture) -> str:
    """Return the picture as SVG."""
    width, height = 540, _y(1) + BOX + 44
    shapes = []
    for rank, places in enumerate(picture.ranks):
        label = f'<text x="14" y="{_y(rank) + BOX // 2 + 5}" class="rank">rank {rank}</text>'
        shapes += [label, *_slots(rank, picture.slots)]
        for number, place in enumerate(places):
            shapes += _box(rank, number, place)
    shapes += _arrows(picture.ranks)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif">',
            f"<title>{picture.title}. {picture.caption}</title>",
            "<style>.call { font-size: 18px; font-weight: bold; text-anchor: middle }",
            ".small { font-size: 12px; text-anchor: middle } .rank { font-size: 14px }</style>",
            *(_arrow_head(name) for name in COLOURS if name != WAIT),
            f'<rect width="{width}" height="{height}" rx="8" fill="white"/>',
            f'<text x="14" y="26" font-size="16" font-weight="bold">{picture.title}</text>',
            *shapes,
            f'<text x="14" y="{height - 14}" font-size="13">{picture.caption}</text>',
            "</svg>",
            "",
        ]
    )


def main() -> int:
    """Compare the files, or write them; return 1 if one differs."""
    differ = 0
    for picture in PICTURES:
        path = FOLDER / f"{picture.name}.svg"
        if "--update" in sys.argv[1:]:
            path.write_text(draw(picture))
        elif not path.exists() or path.read_text() != draw(picture):
            print(f"{path.name} differs: run docs/pictures/deadlocks.py --update")
            differ = 1
    return differ


if __name__ == "__main__":
    sys.exit(main())
