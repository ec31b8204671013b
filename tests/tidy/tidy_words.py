"""Plain English as a rule: idioms that make a text read as translated stay rare.

A reader with another first language understands "the rate of the link" sooner than a clause in its
place. A single such sentence is no fault. So the rule counts sentences in comments, docstrings and
Markdown text, and each idiom has a bound over the whole tree.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidy_source import Source

FILES_SHOWN = 5  # in the complaint about an idiom: the worst ones
EXCERPT = 70  # characters of the first place in such a file


class Idiom(NamedTuple):
    """A way of writing that should be rare: at most `most` of 1,000 sentences match `pattern`."""

    name: str
    most: int
    pattern: re.Pattern[str]
    instead: str


def _words(text: str, after: str = r"\b") -> re.Pattern[str]:
    return re.compile(rf"\b(?:{text}){after}", re.IGNORECASE)


_AFTER_WHAT = "is|are|was|were|has|have|had|it|they|this|that|the|an?|other|others|each|all"
_PREPOSITIONS = "of|to|from|for|in|on|by|with|at|after|before|under|over|through"
_OPENINGS = re.compile(r"^(?:Of|What|Whatever|Where|Who|Whom|Whose|Whoever)\b")
_CODE_SAYS = _words("says|said|tells|(?:is|are) told|knows of")

IDIOMS = (
    Idiom("what-clause", 6, _words(f"what (?:{_AFTER_WHAT})"), "a noun"),
    Idiom("that-of", 3, _words("th(?:at|ose) of"), "the noun again"),
    Idiom("nobody", 4, _words("nobody|whoever|who (?:has|lacks|wants)"), "no peer, no member"),
    Idiom("code says", 10, _CODE_SAYS, "returns, reports, raises, sends"),
    Idiom("so many", 3, _words("so (?:many|much|long)", r"\b(?! (?:as|that)\b)"), "the number"),
    Idiom("has come", 3, _words("ha(?:s|ve|d) come"), "arrives, joins"),
    Idiom("inverted opening", 3, _OPENINGS, "the subject first"),
    Idiom("preposition + which", 12, _words(f"(?:{_PREPOSITIONS}) wh(?:ich|om)"), "two sentences"),
)


def english_is_plain(sources: Iterable[Source]) -> Iterator[str]:
    """No idiom is in more sentences than its bound. Questions and two words do not count."""
    count = 0
    places: dict[Idiom, dict[str, list[str]]] = {idiom: defaultdict(list) for idiom in IDIOMS}
    for source in sources:
        for line, paragraph in source.prose:
            for sentence in re.split(r"(?<=[.!?:])\s+(?=[A-Z])", paragraph):
                if len(sentence.split()) < 3 or sentence.endswith("?"):
                    continue
                count += 1
                for idiom in IDIOMS:
                    if idiom.pattern.search(sentence):
                        places[idiom][source.path].append(f"{line}: {sentence[:EXCERPT]}")
    for idiom, by_path in places.items():
        rate = 1000 * sum(map(len, by_path.values())) / max(count, 1)
        if rate > idiom.most:
            text = f"{idiom.name}, {rate:.1f} in 1,000 sentences, at most {idiom.most}"
            for path in sorted(by_path, key=lambda path: -len(by_path[path]))[:FILES_SHOWN]:
                number, first = len(by_path[path]), by_path[path][0]
                yield f"{path}:{first}: {text}, {number} here; write {idiom.instead}"
