"""The page of a master as a file: its size, and that it reads nothing but its master.

test_page_browser.py looks at it in a browser.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from page_server import PAGE, policy
from page_snapshots import SITUATIONS, crowd, recorded

BYTES_MAX = 60_000
VOID = {"meta", "link", "br", "hr", "img", "input", "col", "source", "wbr", "area", "base", "embed"}
OWN_FIELDS = ("step_s", "since", "operations", "bytes", "losses", "joins")


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text()


class Strict(HTMLParser):
    """Notes each tag that is not closed in order, each id that comes twice, and each attribute."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.faults: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.contents: dict[str, list[str]] = {"style": [], "script": []}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.faults.append(f"line {self.getpos()[0]}: <{tag}> has an attribute twice")
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"line {self.getpos()[0]}: </{tag}> closes no open <{tag}>")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in self.contents:
            self.contents[self.open[-1]].append(data)


@pytest.fixture(scope="module")
def parsed(text: str) -> Strict:
    parser = Strict()
    parser.feed(text)
    parser.close()
    return parser


def test_size(text: str) -> None:
    assert len(text.encode()) <= BYTES_MAX


def test_html_is_well_formed(parsed: Strict, text: str) -> None:
    assert text.startswith("<!DOCTYPE html>\n")
    assert parsed.faults == []
    assert parsed.open == []
    ids = [attributes["id"] for _, attributes in parsed.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_reader_has_landmarks(parsed: Strict) -> None:
    tags = [tag for tag, _ in parsed.tags]
    for landmark in ("header", "nav", "main", "h1", "title", "noscript"):
        assert tags.count(landmark) == 1, landmark
    assert dict(parsed.tags)["html"] == {"lang": "en"}


def test_policy_fits_one_style_and_one_script(parsed: Strict, text: str) -> None:
    tags = [tag for tag, _ in parsed.tags]
    assert tags.count("style") == 1
    assert tags.count("script") == 1
    assert policy(text).count("'sha256-") == 2
    for tag, attributes in parsed.tags:
        events = [name for name in attributes if name.startswith("on") or name == "style"]
        assert events == [], tag


def test_controls_change_nothing(parsed: Strict) -> None:
    tags = {tag for tag, _ in parsed.tags}
    assert not tags & {"form", "button", "input", "select", "textarea", "iframe", "object", "embed"}
    script = "".join(parsed.contents["script"])
    for word in ("button", "method:", "POST", "PUT", "DELETE", "sendBeacon", "WebSocket"):
        assert word not in script, word


def test_addresses_are_relative(parsed: Strict, text: str) -> None:
    for tag, attributes in parsed.tags:
        for name in ("src", "href", "action", "data"):
            address = attributes.get(name)
            assert address in (None, "./", "#", "data:,"), f"<{tag} {name}={address!r}>"
    svg = "http://www.w3.org/2000/svg"  # a name: nothing is read from there
    assert re.findall(r"(?:https?:|wss?:)?//[a-z0-9.]+\.[a-z]\S*", text) == [f'{svg}",']
    style = "".join(parsed.contents["style"])
    assert "url(" not in style
    assert "@import" not in style


def test_texts_of_peers_are_never_parsed(parsed: Strict) -> None:
    script = "".join(parsed.contents["script"])
    parsers = ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function(")
    for word in (*parsers, "setTimeout('", "createContextualFragment", "DOMParser", "javascript:"):
        assert word not in script, word
    # The only outerHTML is read, for the saved page.
    assert script.count("outerHTML") == script.count("${document.documentElement.outerHTML}") == 1


def test_times_and_colours_fit_all_readers(parsed: Strict) -> None:
    style = "".join(parsed.contents["style"])
    for query in ("prefers-color-scheme: dark", "@media print"):
        assert query in style
    assert not re.search(r"animation|transition|@keyframes", style), "nothing moves"
    assert ":focus-visible" in style
    colours = re.search(r":root \{(.*?)\}", style, re.DOTALL)
    dark = re.search(r"dark\) \{\s*:root \{(.*?)\}", style, re.DOTALL)
    assert colours
    assert dark
    names = [set(re.findall(r"--[a-z-]+(?=:)", found[1])) for found in (colours, dark)]
    assert names[0] == names[1], "each colour has a value for dark, too"
    assert set(re.findall(r"var\((--[a-z-]+)\)", style)) == names[0]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_recorded_snapshots_are_of_a_master(situation: str) -> None:
    snapshot = recorded(situation)
    assert snapshot["schema"] == 1
    assert snapshot["run"] == situation
    assert snapshot["findings"]
    assert snapshot["groups"][0]["peers"]


def test_script_reads_each_field_of_a_snapshot(parsed: Strict) -> None:
    script = "".join(parsed.contents["script"])
    unread = {"schema", "incarnation", "over_s", "bytes_sent", "bytes_received", "received_per_s"}
    unread |= {"joint", "saving", "failing", "lanes", "lanes_used", "at", "since", "level"}

    def names(value: object) -> set[str]:
        if isinstance(value, dict):
            own = {name for name in value if isinstance(name, str)}
            return own.union(*map(names, value.values())) if value else own
        return set().union(*map(names, value)) if isinstance(value, list) else set()

    snapshot = recorded("not_called")
    for peer in snapshot["groups"][0]["peers"]:
        peer["telemetry"]["scalars"] = {}  # the program names these
    for name in names(json.loads(json.dumps(snapshot))) - unread:
        assert re.search(rf"[.\[\"]{name}\b|\b{name}\b", script), f"the page ignores {name}"
    assert all(name in script for name in (*OWN_FIELDS, "scalars_history", "heard_s", "planner"))


def test_made_up_runs_have_a_history() -> None:
    group = crowd(18)["groups"][0]
    assert len(group["peers"]) == len(group["ring"]) == 18
    assert len(group["history"]["operations"]) == 720
    assert len(group["scalars_history"]["loss"]) == 512
