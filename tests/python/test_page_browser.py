"""The page of a master in a headless Chromium, with recorded snapshots and made-up larger runs.

It needs Debian's chromium, and `pip install playwright axe-playwright-python`. Without them it is
skipped, unless BROWSER_TESTS=1 promises them. SCREENSHOTS=FOLDER keeps a picture of each run.
"""

from __future__ import annotations

import copy
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_server import PageServer
from page_snapshots import SITUATIONS, Snapshot, crowd, recorded

IS_PROMISED = os.environ.get("BROWSER_TESTS") == "1"
try:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import Browser, Page, expect, sync_playwright
except ImportError:
    if IS_PROMISED:
        raise
    pytest.skip(
        "SKIPPED: needs a browser: apt-get install chromium, and "
        "pip install playwright axe-playwright-python",
        allow_module_level=True,
    )

CHROMIUM = shutil.which("chromium") or ""
if not CHROMIUM and not IS_PROMISED:
    pytest.skip("SKIPPED: needs a browser: apt-get install chromium", allow_module_level=True)
assert CHROMIUM, "BROWSER_TESTS=1 promises a browser: apt-get install chromium"

MARKED_S = 2.0  # the longest from a snapshot to the mark of a killed peer
WAIT_MS = 20_000
WIDE, NARROW = 1280, 360
HOSTILE = "<img src=x onerror=alert(1)>"

Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer() as started:
        yield started


class Opened:
    """Pages of one test, and everything that they must not do."""

    def __init__(self, browser: Browser, server: PageServer) -> None:
        self.browser, self.server = browser, server
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.is_restarting = False

    def page(
        self, path: str = "/", *, width: int = WIDE, scheme: Any = "light", **options: Any
    ) -> Page:
        context = self.browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **options
        )
        context.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        page = context.new_page()
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))
        page.on("dialog", lambda dialog: self._note("error", f"a dialog: {dialog.message}"))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path if "://" in path else self.server.url(path))
        return page

    def run(self, snapshot: Snapshot, **options: Any) -> Page:
        self.server.put(snapshot)
        page = self.page(f"/run/{snapshot['run']}", **options)
        expect(page.locator(".members").first).to_be_attached()
        return page

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not self.is_restarting:
            self.faults.append(text)

    def check(self) -> None:
        assert self.faults == []
        foreign = [
            url
            for url in self.requests
            if not url.startswith((self.server.url(), "data:", "blob:", "file:"))
        ]
        assert foreign == []


@pytest.fixture
def opened(browser: Browser, server: PageServer) -> Iterator[Opened]:
    """Give pages; at the end, each console error and each foreign request fails the test."""
    made = Opened(browser, server)
    yield made
    for context in list(browser.contexts):
        context.close()
    made.check()


def row_of(page: Page, name: str) -> Any:
    return page.locator(".members tbody tr").filter(
        has=page.get_by_role("rowheader", name=name, exact=True)
    )


def overflow_of(page: Page) -> int:
    """Return the pixels by which the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


def serious(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def keep_picture(page: Page, name: str) -> None:
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


# --- Each situation -------------------------------------------------------------------------------


@pytest.mark.parametrize("situation", SITUATIONS)
def test_situation_is_shown_in_the_words_of_its_findings(opened: Opened, situation: str) -> None:
    snapshot = recorded(situation)
    page = opened.run(snapshot)
    expect(page.locator("h1")).to_have_text(situation)
    shown = page.locator(".finding")
    expect(shown).to_have_count(len(snapshot["findings"]))
    for number, finding in enumerate(snapshot["findings"]):
        one = shown.nth(number)
        for words in (finding["severity"], finding["code"], *finding["whom"], finding["text"]):
            expect(one).to_contain_text(words)
        if finding["code"] != "nothing_wrong":
            expect(one.locator(".next")).to_have_text(finding["next"])
    first = snapshot["findings"][0]
    assert first["code"] in page.title()
    group = snapshot["groups"][0]
    for peer in group["peers"]:
        row = row_of(page, peer["name"])
        for words in (peer["state"], peer["address"]):
            expect(row).to_contain_text(words)
    expect(page.locator(".facts")).to_contain_text(f"epoch {group['epoch']}")
    expect(page.locator(".facts")).to_contain_text(group["shared_state"]["hash"])
    for event in snapshot["events"]:
        expect(page.locator(".events")).to_contain_text(event["text"])
    assert serious(page) == []
    keep_picture(page, situation)


def test_missing_member_is_named_in_the_call_and_marked_in_the_ring(opened: Opened) -> None:
    page = opened.run(recorded("not_called"))
    expect(page.locator(".calls").first).to_contain_text("missing: rank 2 (osaka)")
    expect(page.locator(".part-ring svg")).to_contain_text("not called")
    expect(row_of(page, "osaka")).to_have_class("is-bad")
    expect(row_of(page, "osaka")).to_contain_text("rank_has_not_called")
    expect(row_of(page, "tokyo")).to_contain_text("for osaka")


def test_frozen_peer_is_marked(opened: Opened) -> None:
    page = opened.run(recorded("frozen"))
    expect(row_of(page, "osaka")).to_contain_text("▲ silent")
    expect(row_of(page, "osaka")).to_have_class("is-bad")
    expect(page.locator(".part-ring svg")).to_contain_text("silent")


def test_killed_peer_is_marked_in_time(opened: Opened) -> None:
    page = opened.run(recorded("healthy"))
    expect(row_of(page, "osaka")).to_contain_text("● member")
    after = recorded("healthy")  # no event names it: it is not there any more
    group = after["groups"][0]
    (gone,) = (one for one in group["peers"] if one["name"] == "osaka")
    group["peers"].remove(gone)
    group["ring"] = [one for one in group["ring"] if gone["rank"] not in (one["from"], one["to"])]
    began = time.monotonic()
    opened.server.put(after)
    expect(row_of(page, "osaka")).to_contain_text("✕ lost")
    expect(page.locator(".lost")).to_contain_text("✕ lost: osaka")
    assert time.monotonic() - began < MARKED_S
    expect(page.locator(".part-ring svg")).to_contain_text("2 members")
    expect(page.locator(".part-hour")).to_contain_text("losses 1")


def test_killed_peer_is_marked_on_a_page_that_was_opened_later(opened: Opened) -> None:
    page = opened.run(recorded("killed"))
    expect(row_of(page, "osaka")).to_contain_text("✕ lost")
    expect(row_of(page, "osaka")).to_contain_text("its process ended or its network broke")


def test_peer_that_left_is_no_loss(opened: Opened) -> None:
    snapshot = recorded("killed")
    text = "osaka (peer 1.9, rank 2, 127.0.0.1:1) has left (destroy_process_group)"
    snapshot["events"] = [{"at": snapshot["time"], "level": "info", "text": text}]
    page = opened.run(snapshot)
    expect(row_of(page, "osaka")).to_contain_text("○ left")
    expect(row_of(page, "osaka")).to_have_class("is-gone")
    expect(page.locator(".lost")).to_be_empty()


# --- Sizes, colours, readers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "width", "scheme"),
    [
        (1, NARROW, "dark"),
        (2, WIDE, "light"),
        *itertools.product((3, 18, 128), (NARROW, WIDE), ("light", "dark")),
    ],
)
def test_run_of_any_size_fits(opened: Opened, members: int, width: int, scheme: str) -> None:
    snapshot = crowd(members, missing=members // 2 if members > 2 else None)
    page = opened.run(snapshot, width=width, scheme=scheme)
    assert overflow_of(page) <= 0
    assert serious(page) == []
    expect(page.locator(".members tbody tr")).to_have_count(members)
    if members > 24:
        missing = snapshot["groups"][0]["peers"][members // 2]["name"]
        expect(page.locator(".members tbody tr").first).to_contain_text(missing)
    if members > 15:
        expect(page.locator(".part-ring")).to_contain_text("2 slow links")
        expect(page.locator(".part-ring")).to_contain_text("▲ slow: oslo")
    expect(page.locator(".part-hour h2")).to_contain_text("The last hour")
    expect(page.locator(".part-hour")).to_contain_text("losses 2 · ▲ joins 5")
    expect(page.locator(".part-curves")).to_contain_text("loss 2.36")
    keep_picture(page, f"{members}-{width}-{scheme}")


@pytest.mark.parametrize("width", [NARROW, 720, 900, 1100])
def test_each_name_has_its_place_at_the_ring(opened: Opened, width: int) -> None:
    snapshot = crowd(18, missing=3)
    page = opened.run(snapshot, width=width)
    names = [peer["name"] for peer in snapshot["groups"][0]["peers"]]
    shown = page.locator(".part-ring svg .name").all_text_contents()
    assert [name for name in shown if name != "not called"] == names
    outside = page.evaluate("""() => {
      const frame = document.querySelector('.part-ring svg').getBoundingClientRect();
      const labels = [...document.querySelectorAll('.part-ring svg text')];
      return labels.filter((label) => {
        const box = label.getBoundingClientRect();
        return box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1;
      }).map((label) => label.textContent);
    }""")
    assert outside == []
    assert overflow_of(page) <= 0


def test_print_shows_all_members_on_white(opened: Opened) -> None:
    page = opened.run(crowd(128), width=718, scheme="dark")
    page.emulate_media(media="print", color_scheme="light")
    assert overflow_of(page) <= 0
    box = page.locator(".scroll").first
    assert box.evaluate("one => one.scrollHeight - one.clientHeight") <= 1
    expect(page.locator("header nav")).to_be_hidden()
    keep_picture(page, "print")


def test_focus_is_visible(opened: Opened) -> None:
    page = opened.run(recorded("healthy"))
    page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert (page.evaluate("document.activeElement.id"), outline) == ("runs", "solid")


def test_screen_reader_hears_new_findings_and_no_times(opened: Opened) -> None:
    snapshot = recorded("frozen")
    page = opened.run(snapshot)
    page.evaluate("""() => {
      window.heard = [];
      new MutationObserver((changes) => changes.forEach((one) => {
        const place = one.target.nodeType === 3 ? one.target.parentElement : one.target;
        const live = place.closest('[aria-live]').getAttribute('aria-live');
        if (live === 'polite') window.heard.push(place.tagName);
      })).observe(document.querySelector('.findings'),
        {subtree: true, childList: true, characterData: true});
    }""")
    later = copy.deepcopy(snapshot)
    later["findings"][0]["text"] = "osaka has been silent for 3 s"
    opened.server.put(later)
    expect(page.locator(".finding").first).to_contain_text("silent for 3 s")
    assert page.evaluate("window.heard") == []
    later = copy.deepcopy(later)
    later["findings"].append({**later["findings"][0], "code": "slow_peer"})
    opened.server.put(later)
    expect(page.locator(".finding")).to_have_count(2)
    assert page.evaluate("window.heard") == ["UL"]


def test_reader_keeps_details_and_place(opened: Opened) -> None:
    snapshot = crowd(128)
    page = opened.run(snapshot)
    page.locator("summary").click()
    page.locator(".scroll").evaluate("one => { one.scrollTop = 500; }")
    snapshot = copy.deepcopy(snapshot)
    snapshot["groups"][0]["peers"][3]["doing"] = "has been in all_gather for 2 s"
    opened.server.put(snapshot)
    expect(page.locator(".members")).to_contain_text("has been in all_gather")
    expect(page.locator("details")).to_have_attribute("open", "")
    assert page.locator(".scroll").evaluate("one => one.scrollTop") == 500


# --- Hostile and strange answers ------------------------------------------------------------------


def test_hostile_names_stay_text(opened: Opened) -> None:
    snapshot = recorded("not_called")
    snapshot["run"] = HOSTILE
    group, finding = snapshot["groups"][0], snapshot["findings"][0]
    for peer in group["peers"]:
        peer |= {"name": HOSTILE, "address": HOSTILE, "doing": f"{HOSTILE}\u202e\x1b[2J"}
        peer["telemetry"] |= {"scalars": {HOSTILE: 1.0, "__proto__": 2.0, "constructor": 3.0}}
        peer["telemetry"]["waits_for"] = HOSTILE
    finding |= {"whom": [HOSTILE], "text": HOSTILE, "next": HOSTILE, "code": HOSTILE}
    group["calls"][0]["call"] = HOSTILE
    text = f"{HOSTILE} (peer 1.1, rank 0, {HOSTILE}) lost: {HOSTILE}</script><script>alert(1)"
    snapshot["events"] = [{"at": snapshot["time"], "level": HOSTILE, "text": text}]
    opened.server.put(snapshot)
    page = opened.page(f"/run/{HOSTILE.replace('/', '%2F')}")
    expect(page.locator("h1")).to_have_text(HOSTILE)
    expect(page.locator(".finding").first).to_contain_text(HOSTILE)
    expect(page.locator(".members")).to_contain_text("\\x202e\\x1b[2J")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2, "the program, and its data for a saved page"
    assert overflow_of(page) <= 0
    page.set_viewport_size({"width": NARROW, "height": 900})
    expect(page.locator(".members").first).to_be_visible()
    assert overflow_of(page) <= 0


STRANGE = [None, 7, -1, "x", "\u202e" * 99, [], [7], [[]], {}, [{}], {"a": 1}, True, 1e308]


def test_master_of_another_version_is_shown_as_far_as_it_is_understood(opened: Opened) -> None:
    page = opened.run(crowd(3, missing=1))
    whole = crowd(3, missing=1)
    whole["groups"][0]["planner"] = {"text": "nothing better was found"}

    def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        items = enumerate(value[:1]) if isinstance(value, list) else ()
        for key, one in value.items() if isinstance(value, dict) else items:
            yield (*path, key)
            yield from places(one, (*path, key))

    where = [list(path) for path in places(whole)]
    faults = page.evaluate(
        """([whole, places, strange]) => {
          const faults = [];
          const attempt = (snapshot, what) => {
            try { show(snapshot); } catch (error) { faults.push(`${what}: ${error.stack}`); }
          };
          for (const path of places) for (const value of [...strange, undefined]) {
            const changed = structuredClone(whole);
            const at = path.slice(0, -1).reduce((one, key) => one[key], changed);
            at[path.at(-1)] = value;
            if (value === undefined && !Array.isArray(at)) delete at[path.at(-1)];
            attempt(changed, `${path}=${JSON.stringify(value)}`);
          }
          for (const value of strange) attempt(value, JSON.stringify(value));
          return faults.slice(0, 5);
        }""",
        [whole, where, STRANGE],
    )
    assert len(where) > 80
    assert faults == []
    assert "NaN" not in page.content()
    assert "undefined" not in page.locator("main").inner_text()


def test_several_groups_have_titles(opened: Opened) -> None:
    snapshot = recorded("healthy")
    snapshot["groups"].append({**copy.deepcopy(snapshot["groups"][0]), "group": 3})
    page = opened.run(snapshot)
    expect(page.get_by_role("heading", name="Peer group 3", exact=True)).to_be_visible()
    assert page.locator(".part-ring svg").count() == 2
    assert serious(page) == []


# --- The master comes, goes and ends a run --------------------------------------------------------


def test_page_recovers_after_a_restart_of_the_master(opened: Opened) -> None:
    page = opened.run(recorded("healthy"))
    expect(page.locator("#link")).to_have_text("live")
    opened.is_restarting = True  # Chromium reports each failed connection
    opened.server.stop()
    expect(page.locator("#banner")).to_contain_text("no answer from the master for ")
    expect(page.locator("#link")).to_have_text("no answer")
    expect(page.locator("body")).to_have_class("old")
    expect(row_of(page, "osaka")).to_be_visible()
    opened.server.start()
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("#banner")).to_be_empty()
    opened.server.put({**recorded("frozen"), "run": "healthy"})
    expect(page.locator(".finding").first).to_contain_text("peer_silent")


def test_run_that_ends_is_said_to_have_ended(opened: Opened) -> None:
    page = opened.run(recorded("healthy"))
    expect(page.locator("#link")).to_have_text("live")
    opened.is_restarting = True  # Chromium reports the answer 404
    opened.server.end("healthy")
    expect(page.locator("#link")).to_have_text("ended")
    expect(page.locator("#banner")).not_to_be_empty()
    expect(row_of(page, "osaka")).to_be_visible()
    opened.server.put(recorded("healthy"))
    expect(page.locator("#link")).to_have_text("live")


def test_unknown_run_has_the_answer_of_the_master(opened: Opened) -> None:
    opened.is_restarting = True
    page = opened.page("/run/week")
    expect(page.locator("#banner")).to_contain_text('run "week" is not known to this master')


def test_missing_run_has_no_picture(opened: Opened) -> None:
    opened.is_restarting = True
    page = opened.page("/run/week?static=1")
    expect(page.locator("#banner")).to_contain_text('run "week" is not known to this master')
    expect(page.locator("#link")).to_have_text("no picture")


def test_overloaded_master_is_asked_again(opened: Opened) -> None:
    """A master that serves as many streams as it can refuses one more: the page asks instead."""
    opened.is_restarting = True
    opened.server.put(recorded("healthy"))
    opened.server.refuses_streams = True
    page = opened.page("/run/healthy")
    expect(page.locator(".finding").first).to_be_visible()
    expect(page.locator("#link")).to_have_text("live")
    opened.server.put({**recorded("frozen"), "run": "healthy"})
    expect(page.locator(".finding").first).to_contain_text("peer_silent")


def test_runs_are_listed(opened: Opened) -> None:
    for name in ("a night/1", HOSTILE):
        opened.server.put(recorded("healthy"), name)
    page = opened.page("/")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.get_by_role("link", name="Save this picture")).to_be_hidden()
    assert serious(page) == []
    page.get_by_role("link", name="a night/1").click()
    expect(page.locator(".finding").first).to_be_visible()
    assert page.url.endswith("/run/a%20night%2F1")
    page.get_by_role("link", name="All runs").click()
    expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()


def test_only_run_is_shown_at_once(opened: Opened) -> None:
    opened.server.put(recorded("healthy"))
    page = opened.page("/")
    expect(page.locator("h1")).to_have_text("healthy")
    expect(page.locator(".finding").first).to_be_visible()


def test_static_page_has_no_stream(opened: Opened) -> None:
    opened.server.put(recorded("frozen"))
    page = opened.page("/run/frozen?static=1")
    expect(page.locator("#link")).to_contain_text("picture of 2")
    expect(page.locator(".finding").first).to_contain_text("peer_silent")
    assert not any("/events" in url for url in opened.requests)


def test_saved_page_needs_no_master(opened: Opened, tmp_path: Path) -> None:
    snapshot = recorded("killed")
    snapshot["groups"][0]["peers"][0]["name"] = "</script><!--" + HOSTILE
    page = opened.run(snapshot)
    with page.expect_download() as download:
        page.get_by_role("link", name="Save this picture").click()
    assert download.value.suggested_filename.startswith("killed-2")
    saved = tmp_path / "saved.html"
    download.value.save_as(saved)
    opened.server.stop()
    opened.requests.clear()
    page.close()
    again = opened.page(saved.as_uri())
    expect(again.locator("#link")).to_contain_text("picture of 2")
    expect(again.locator(".finding").first).to_contain_text("nothing_wrong")
    expect(row_of(again, "osaka")).to_contain_text("✕ lost")
    assert again.locator(".members tbody tr").count() == 3
    assert serious(again) == []
    assert opened.requests == [saved.as_uri()]
