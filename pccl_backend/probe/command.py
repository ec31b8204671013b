"""`pccl probe`: options, signals and exit codes."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from pccl_backend._limits import PORT_MAX, TRIAL_STREAMS_MAX, TRIAL_TIME_MAX_S, TRIAL_TIME_MIN_S
from pccl_backend._settings import PeerSettings, is_loopback
from pccl_backend.command import keyring_file
from pccl_backend.command.common import CommandError
from pccl_backend.command.endpoint import Endpoint
from pccl_backend.probe import settings
from pccl_backend.probe.advice import MeasuredPath, rows_of, streams_text
from pccl_backend.probe.client import Client, Plan, ProbeError, Rate
from pccl_backend.probe.report import cells, head, model_lines, setting_lines, summary
from pccl_backend.probe.settings import HostSettings

__all__ = ["main"]

INTERRUPTED = 130
LOOPBACK = "127.0.0.1"
PORT = 48149
SUFFIXES = (".pdf", ".png", ".svg")
OVERHEAD_S = 0.1  # of one measurement: opening and closing the connections
COUNTS_MAX = 16  # different numbers of streams in one probe


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `pccl probe`; return 0, 1 if it failed, 130 after Ctrl-C.

    Ctrl-C is the normal end of a server: it returns 0.
    """
    options = _parse(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        ours = PeerSettings.read(os.environ)
    except ValueError as error:
        print(f"pccl probe: {error}", file=sys.stderr)
        return 1
    try:
        _serve(options, ours) if options.serve else _measure(options, ours)
    except (ProbeError, CommandError, OSError) as error:
        print(f"pccl probe: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if options.serve:
            return 0
        print("\npccl probe: interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _serve(options: argparse.Namespace, ours: PeerSettings) -> None:
    host = options.host or LOOPBACK
    tokens = [] if ours.token is None else [ours.token]
    if options.keyring:
        tokens += [entry.token for entry in keyring_file.read(options.keyring)]
    port = PORT if options.port is None else options.port
    asked = {"host": host, "port": port, "about": json.dumps(settings.read())}
    with Endpoint({"serve": asked}, tokens) as endpoint:
        for line in endpoint.lines():
            if "failed" in line:
                raise ProbeError(line["why"])
            if "listening" in line:
                where = f"[{host}]" if ":" in host else host
                print(f"pccl probe listening on {where}:{line['listening']}", flush=True)
            else:
                print(f"client {line['client']}: {line['text']}", flush=True)


def _measure(options: argparse.Namespace, ours: PeerSettings) -> None:
    _check_plot(options.plot)
    plan = Plan(
        streams=options.streams,
        seconds=options.seconds,
        directions=("there", "back") if options.one_way else ("there", "back", "both"),
        congestion=ours.tcp_congestion,
    )
    host, port = options.target
    with Client(host, port, plan, ours.token) as client:
        rtt = client.rtt
        total = plan.trials * (plan.seconds + OVERHEAD_S + 4 * rtt)
        print(f"{host}: {rtt * 1e3:.3g} ms RTT, median of a few messages")
        print(
            f"{plan.trials} measurements of {plan.seconds:g} s, what they begin with left out: "
            f"about {total:.0f} s.\n"
        )
        rates = _show_rates(client, plan)
    measured = MeasuredPath(
        rtt=rtt,
        rows=rows_of(rates),
        here=HostSettings.from_texts(settings.read()),
        there=client.settings,
        congestion=plan.congestion,
        lanes_asked=ours.lanes,
    )
    _report(measured, options)


def _show_rates(client: Client, plan: Plan) -> list[Rate]:
    rates = []
    print("\n".join(head(both="both" in plan.directions)), flush=True)
    for rate in client.measure():
        print(cells(rate, last=rate.direction == plan.directions[-1]), end="", flush=True)
        rates.append(rate)
    return rates


def _report(measured: MeasuredPath, options: argparse.Namespace) -> None:
    if measured.usual.carried == 0:
        raise ProbeError(
            f"nothing arrived over {streams_text(measured.usual)} in the time that counts: is the "
            "path so slow, or a host so busy? Try "
            f"--seconds {min(4 * options.seconds, TRIAL_TIME_MAX_S):g}"
        )
    lines = ["", *summary(measured), ""]
    lines += model_lines(measured, options.parameters, options.bytes_per_parameter)
    lines += ["", *setting_lines(measured.here, measured.there)]
    print("\n".join(lines))
    if options.plot:
        from pccl_backend.probe.picture import draw  # slow to import

        draw(measured, options.target[0], options.plot)
        print(f"\npicture: {options.plot}")


def _check_plot(path: Path | None) -> None:
    """Report each problem of the picture before the measurement, not after it."""
    if path is None:
        return
    if find_spec("matplotlib") is None:
        raise ProbeError("--plot needs matplotlib: pip install 'pccl-torch[demo]'")
    if not path.parent.is_dir():
        raise ProbeError(f"--plot {path}: there is no folder {path.parent}; make it first")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ProbeError(f"--plot {path}: it cannot be written")


# --- Options --------------------------------------------------------------------------------------


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.serve and options.target:
        parser.error("--serve measures nothing: leave HOST out, or --serve")
    beyond = options.serve and not is_loopback(options.host or LOOPBACK)
    secured = options.keyring is not None or bool(os.environ.get("PCCL_SECRET_FILE"))
    if beyond and not options.insecure and not secured:
        parser.error(
            f"--host {options.host} serves everybody who reaches it, and nobody proves who they "
            "are: set PCCL_SECRET_FILE, or add --insecure if you trust that network"
        )
    if options.insecure and secured:
        parser.error(
            "--insecure goes with neither PCCL_SECRET_FILE nor --keyring: a server that has a "
            "token never speaks plain text"
        )
    if (options.insecure or options.keyring) and not options.serve:
        parser.error("--insecure and --keyring go with --serve")
    if options.serve:
        return options
    if not options.target:
        parser.error("name the HOST to measure against, where `pccl probe --serve` runs")
    if options.host is not None:
        parser.error("--host says where --serve listens: name the other host without it")
    host, port = options.target
    if port is not None and options.port is not None:
        parser.error(f"two ports, {port} and {options.port}: leave --port out")
    port = options.port if port is None else port
    options.target = (host, PORT if port is None else port)
    if options.target[1] == 0:
        parser.error(
            f"port is 0, must be 1 to {PORT_MAX}: the one that the server says it listens on"
        )
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pccl probe",
        description="Measure what the path to another host carries with 1, 2, 4, ... TCP streams, "
        "and say how long a model of a given size takes and which settings would help. The other "
        "end runs `pccl probe --serve`. The streams are set as pccl sets its own, and obey "
        "PCCL_TCP_CONGESTION and PCCL_LANES.",
        epilog="With PCCL_SECRET_FILE both ends prove that they know the token, and all traffic is "
        "encrypted. Without it nobody proves anything, but what travels has no meaning. End the "
        "server afterwards, since everybody whom it admits can make it busy.",
    )
    add = parser.add_argument
    add("target", nargs="?", type=_target, metavar="HOST[:PORT]", help="where the other end runs")
    add("--serve", action="store_true", help="be the other end, until Ctrl-C")
    add(
        "--host",
        metavar="ADDRESS",
        help="with --serve: where to listen (default 127.0.0.1: this machine only; 0.0.0.0 and :: "
        "are every address of this machine)",
    )
    add(
        "--insecure",
        action="store_true",
        help="with --serve, a --host beyond this machine and no token: serve everybody who "
        "reaches it, in plain text",
    )
    add(
        "--keyring",
        type=Path,
        metavar="PATH",
        help="with --serve: admit whoever has a token of this file, and encrypt all traffic "
        "(default: the token of PCCL_SECRET_FILE)",
    )
    add("--port", type=_port, help=f"default {PORT}; with --serve 0 is any free one")
    add(
        "--streams",
        type=_streams,
        default=(1, 2, 4, 8, 16, 32),
        metavar="N,N,...",
        help=f"how many at once, each up to {TRIAL_STREAMS_MAX} (default 1,2,4,8,16,32)",
    )
    add(
        "--seconds",
        type=_number("--seconds", TRIAL_TIME_MIN_S, TRIAL_TIME_MAX_S),
        default=3.0,
        metavar="S",
        help="of each measurement, of which the first is not counted (below 2 s: the first half; "
        "default %(default)g)",
    )
    add("--one-way", action="store_true", help="leave out both directions at once")
    add(
        "--parameters",
        type=_number("--parameters", 1, 1e15),
        default=1e9,
        metavar="X",
        help="of the model (default 1e9)",
    )
    add(
        "--bytes-per-parameter",
        type=_number("--bytes-per-parameter", 0.01, 64),
        default=4.0,
        metavar="B",
        help="as it travels (default 4, float32)",
    )
    add("--plot", type=_picture, metavar="FILE", help=f"draw it: {', '.join(SUFFIXES)}")
    return parser


def _target(text: str) -> tuple[str, int | None]:
    """Parse `host`, `host:port`, `[v6]:port`, `[v6]` or a bare IPv6 address."""
    host, colon, port = text.rpartition(":")
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        colon, port = rest[:1], rest[1:]
        if rest and colon != ":":
            raise argparse.ArgumentTypeError(f"{text!r} is no HOST[:PORT]: write [v6]:port")
    elif not colon or ":" in host:
        host, colon = text, ""
    if not host:
        raise argparse.ArgumentTypeError(f"{text!r} names no host: write HOST or HOST:PORT")
    return host, _port(port) if colon else None


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= PORT_MAX):
        raise argparse.ArgumentTypeError(f"port is {text!r}, must be a number from 0 to {PORT_MAX}")
    return int(text)


def _streams(text: str) -> tuple[int, ...]:
    counts = set()
    for word in text.split(","):
        if not (re.fullmatch("[0-9]{1,3}", word) and 1 <= int(word) <= TRIAL_STREAMS_MAX):
            raise argparse.ArgumentTypeError(
                f"{word!r} is no number of streams from 1 to {TRIAL_STREAMS_MAX}: write them as "
                "1,2,4"
            )
        counts.add(int(word))
    if len(counts) > COUNTS_MAX:
        raise argparse.ArgumentTypeError(
            f"{len(counts)} numbers of streams, at most {COUNTS_MAX}: leave some out"
        )
    return tuple(sorted(counts))


def _number(name: str, least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{name} is {text!r}, must be a number from {least:g} to {most:g}"
            )
        return value

    return read


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in SUFFIXES:
        raise argparse.ArgumentTypeError(
            f"{text!r} ends in {path.suffix or 'nothing'!r}, must end in {', '.join(SUFFIXES)}"
        )
    return path
