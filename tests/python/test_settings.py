"""pccl:// URLs and environment variables, without a process group."""

from __future__ import annotations

import os
import sys
import warnings

import pytest
from world import run_program

import pccl_backend as pccl
from pccl_backend import _C, _settings, api
from pccl_backend._settings import OpenRun, PeerSettings, is_printable, read_url


@pytest.mark.parametrize(
    ("url", "host", "port", "run"),
    [
        ("pccl://master.example:1234/tokyo", "master.example", 1234, "tokyo"),
        ("pccl://10.0.0.1/a-b_c.d", "10.0.0.1", 48148, "a-b_c.d"),
        ("pccl://[::1]:7/x", "::1", 7, "x"),
        ("pccl://[fe80::1%25eth0]", "fe80::1%eth0", 48148, "default"),
        ("pccl://h", "h", 48148, "default"),
        ("pccl://h/", "h", 48148, "default"),
        ("pccl://h/mein%20Lauf", "h", 48148, "mein Lauf"),
    ],
)
def test_names_a_run(url: str, host: str, port: int, run: str) -> None:
    read = read_url(url, {})
    assert (read.host, read.port, read.run) == (host, port, run)
    assert (read.peer_group, read.min_peers, read.peer) == (0, 1, PeerSettings())
    assert read.founders == 1


def test_every_parameter() -> None:
    url = (
        "pccl://h/r?peer_group=3&min_peers=2&founders=3&peer_timeout=2.5&master_timeout=7"
        "&first_call_timeout=0.7&call_timeout=60"
        "&advertise=me.example&port_range=48200-48299&lanes=4&tcp_congestion=reno&restore=off"
        "&on_peer_loss=raise&pattern=ring&name=tokyo-3"
    )
    assert read_url(url, {}) == OpenRun(
        host="h",
        port=48148,
        run="r",
        peer_group=3,
        min_peers=2,
        founders=3,
        peer=PeerSettings(
            peer_timeout=2.5,
            first_call_timeout=0.7,
            call_timeout=60.0,
            master_timeout=7.0,
            advertise="me.example",
            port_range=(48200, 48299),
            lanes=4,
            tcp_congestion="reno",
            restore=False,
            on_peer_loss="raise",
            pattern="ring",
            name="tokyo-3",
        ),
    )


def test_every_variable() -> None:
    variables = {
        "PCCL_PEER_TIMEOUT": "3",
        "PCCL_FIRST_CALL_TIMEOUT": "9",
        "PCCL_CALL_TIMEOUT": "90",
        "PCCL_MASTER_TIMEOUT": "4",
        "PCCL_ADVERTISE": "me",
        "PCCL_PORT_RANGE": "5-6",
        "PCCL_RESTORE": "off",
        "PCCL_CHECK_CALLSITE": "1",
        "PCCL_ON_PEER_LOSS": "retry",
        "PCCL_PATTERN": "direct",
        "PCCL_NAME": "tokyo-3",
        "PCCL_LOG": "debug",
    }
    assert PeerSettings.read(variables) == PeerSettings(
        peer_timeout=3.0,
        first_call_timeout=9.0,
        call_timeout=90.0,
        master_timeout=4.0,
        advertise="me",
        port_range=(5, 6),
        restore=False,
        check_callsite=True,
        on_peer_loss="retry",
        pattern="direct",
        name="tokyo-3",
        log_level="debug",
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("x" * 65, "the name is 65 bytes long; at most 64 fit"),
        ("\u00e9" * 33, "the name is 66 bytes long; at most 64 fit"),
        ("a\nb", r"the name must be printable, and it contains '\\n'"),
        ("\u202e", r"the name must be printable, and it contains '\\u202e'"),
    ],
)
def test_a_name_must_be_short_and_printable(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        PeerSettings.read({"PCCL_NAME": name})


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_name_in_a_locale_without_utf_8(locale: str) -> None:
    environment = {
        "PCCL_NAME": os.fsdecode("t\u00f6kyo".encode()),
        "LC_ALL": locale,
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    program = (
        "import os, sys; from pccl_backend._settings import PeerSettings, read_url;"
        "print(ascii(PeerSettings.read(os.environ).name), ascii(read_url(sys.argv[1], {}).run))"
    )
    url = os.fsdecode("pccl://host/z\u00fcrich".encode())
    done = run_program([sys.executable, "-c", program, url], environment=environment)
    assert done.stdout == "'t\\xf6kyo' 'z\\xfcrich'\n", done.stderr


def test_bytes_that_are_no_utf_8_are_no_name() -> None:
    with pytest.raises(ValueError, match=r"it contains '\\udcff'"):
        PeerSettings.read({"PCCL_NAME": "t\udcffk"})


def test_the_name_of_the_host_fits_into_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "x" * 63 + "\u00e9\n")
    assert _settings.host_name() == "x" * 63


def test_the_settings_of_the_run_are_left_out_unless_given() -> None:
    read = PeerSettings.read({"PCCL_PEER_TIMEOUT": "3", "PCCL_PATTERN": ""})
    assert (read.peer_timeout, read.first_call_timeout, read.call_timeout) == (3.0, None, None)
    assert (read.on_peer_loss, read.pattern) == (None, None)
    with pytest.raises(ValueError, match=r"call_timeout=0: expected a number of seconds from 0.1"):
        read_url("pccl://h/r?call_timeout=0", {})


def test_a_parameter_beats_a_variable() -> None:
    variables = {"PCCL_PEER_TIMEOUT": "3", "PCCL_ADVERTISE": "me"}
    read = read_url("pccl://h/r?peer_timeout=5", variables)
    assert (read.peer.peer_timeout, read.peer.advertise) == (5.0, "me")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("tcp://h/r", "pccl://"),
        ("pccl:///r", "names no host"),
        ("pccl://::1/r", r"an IPv6 address stands in brackets: pccl://\[::1\]:48148/RUN"),
        ("pccl://fe80::1:48148/r", "an IPv6 address stands in brackets"),
        ("pccl://u@h/r", "without @"),
        ("pccl://h/r#x", "without @ and #"),
        ("pccl://h:0/r", "port must be a number from 1 to 65535"),
        ("pccl://h:65536/r", "port must be a number from 1 to 65535"),
        ("pccl://h:x/r", "port must be a number from 1 to 65535"),
        ("pccl://h/a/b", "must not contain a slash"),
        ("pccl://h/r?minpeers=2", "'minpeers': did you mean min_peers\\? Known are"),
        ("pccl://h/r?minpeers=2", r"^'pccl://h/r\?minpeers=2': unknown"),
        ("pccl://h/r?min_peer=999999", "min_peer=999999"),
        ("pccl://h/r?min_peer=1000000", r"min_peer=\*\*\*"),
        ("pccl://h/r?min_peer=2x", r"min_peer=\*\*\*"),
        ("pccl://h/r?min_peer=", r"min_peer=\*\*\*"),
        ("pccl://h/r?token=1", "unknown parameter 'token'; known are peer_group, min_peers"),
        ("pccl://h/r?min_peers=2&min_peers=3", "given twice"),
        ("pccl://h/r?min_peers=3&founders=2", "founders=2 is below min_peers=3"),
        ("pccl://h/r?min_peers", "name=value"),
        ("pccl://h/r?min_peers=", "'min_peers' is empty: give it a value or omit it"),
        ("pccl://h/r?lanes=2&advertise=", "'advertise' is empty"),
        ("pccl://h/r?min_peers=0", "min_peers=0: expected an integer from 1"),
        ("pccl://h/r?min_peers=-1", "min_peers=-1: expected an integer from 1"),
        ("pccl://h/r?peer_group=a", "peer_group=a: expected an integer from 0"),
        ("pccl://h/r?log=debug", "log cannot be given in a URL: set the variable PCCL_LOG"),
        ("pccl://h/r?rank=0&world_size=2", "the master assigns ranks"),
        ("pccl://h/r?world_size=2", "min_peers=N"),
        ("pccl://h/r?peer_timeout=0", "number of seconds from 0.1 to 3600"),
        ("pccl://h/r?peer_timeout=soon", "number of seconds from"),
        ("pccl://h/r?master_timeout=1e308", "number of seconds from 0.1 to 3600"),
        ("pccl://[zz]/r", "expected pccl://host:port/RUN"),
        ("pccl://h%00x/r", "address of a host"),
        ("pccl://h/a%0Ab", "text that can be printed"),
        ("pccl://h/a%1B[2J", "text that can be printed"),
        ("pccl://h/a%E2%80%AEb", "text that can be printed"),
        ("pccl://h/r?advertise=a%20b", "expected HOST, HOST:PORT"),
        ("pccl://h/r?advertise=a%E2%80%8Bb", "expected HOST, HOST:PORT"),
        ("pccl://h/r?advertise=1.2.3", "expected HOST, HOST:PORT"),
        ("pccl://h/r?advertise=1.2.3.256", "expected HOST, HOST:PORT"),
        ("pccl://h/r?advertise=-h", "expected HOST, HOST:PORT"),
        ("pccl://h/r?advertise=h:", "expected HOST, HOST:PORT"),
        ("pccl://h/r?advertise=:1", "expected HOST, HOST:PORT"),
        ("pccl://h/r?advertise=::1:40001:x", "expected HOST, HOST:PORT"),
        ("pccl://h/r?advertise=h:a", "expected HOST, HOST:PORT"),
        ("pccl://h/r?advertise=h:0", "ports from 1 to 65535"),
        ("pccl://h/r?advertise=h:65536", "ports from 1 to 65535"),
        ("pccl://h/r?advertise=h:2-1", "expected HOST, HOST:PORT"),
        ("pccl://h/r?advertise=0.0.0.0", "not the address of one host"),
        ("pccl://h/r?advertise=ff02::1", "not the address of one host"),
        ("pccl://h/r?advertise=h:1-2&port_range=5-7", "has 2 ports .* has 3 "),
        ("pccl://h/r?advertise=h:1&port_range=5-7", "has 1 ports .* has 3 "),
        ("pccl://h/r?min_peers=129", "an integer from 1 to 128"),
        ("pccl://h/r?port_range=9", "first-last"),
        ("pccl://h/r?lanes=0", "from 1 to 64"),
        ("pccl://h/r?lanes=65", "from 1 to 64"),
        ("pccl://h/r?tcp_congestion=warp", "refuses it .*tcp_allowed_congestion_control"),
        ("pccl://h/r?port_range=9-8", "first-last"),
        ("pccl://h/r?restore=no", "expected on or off"),
        ("pccl://h/r?on_peer_loss=keep", "expected raise .* or retry"),
        ("pccl://h/r?pattern=star", "pattern=star: expected ring .* or direct"),
    ],
)
def test_refuses(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_url(url, {})


@pytest.mark.parametrize(
    ("text", "host", "outside", "inside"),
    [
        ("h", "h", (0, 0), (0, 0)),
        ("a_b.c-d.example.", "a_b.c-d.example.", (0, 0), (0, 0)),
        ("10.0.0.7", "10.0.0.7", (0, 0), (0, 0)),
        ("2001:db8::7", "2001:db8::7", (0, 0), (0, 0)),
        ("[2001:db8::7]", "2001:db8::7", (0, 0), (0, 0)),
        ("::1", "::1", (0, 0), (0, 0)),
        ("h:40001", "h", (40001, 40001), (40001, 40001)),
        ("[::1]:40001", "::1", (40001, 40001), (40001, 40001)),
        ("10.0.0.7:40001-40003", "10.0.0.7", (40001, 40003), (40001, 40003)),
    ],
)
def test_where_others_reach_a_peer(
    text: str, host: str, outside: tuple[int, int], inside: tuple[int, int]
) -> None:
    peer = PeerSettings.read({"PCCL_ADVERTISE": text})
    assert (peer.advertise, peer.advertised_ports, peer.port_range) == (host, outside, inside)


def test_ports_that_have_other_numbers_outside() -> None:
    peer = PeerSettings.read({"PCCL_ADVERTISE": "h:1-3", "PCCL_PORT_RANGE": "48201-48203"})
    assert (peer.advertised_ports, peer.port_range) == ((1, 3), (48201, 48203))


@pytest.mark.parametrize(
    "url",
    [
        "pccl://user:s3cret@h:1/r",
        "pccl://s3cret@h/r",
        "pccl://user:s3cret@/r",
        "pccl://user:s3/s3cret@h/r",
        "pccl://user:s3cret%40h/r",
        "pccl://user:s3cret@[zz]/r",
        "pccl://user:s3cret@\u2100/r",
        "http://user:s3cret@h/r",
        "user:s3cret@h",
        "pccl://h/r/user:s3cret@h",
        "pccl://h/r?token=s3cret",
        "pccl://h/r?min_peers=2&min_peers=2&password=s3cret",
        "pccl://h/r?min_peers=0&token=s3cret",
        "pccl://h/r?s3cret",
        "pccl://h/r#s3cret",
        "pccl://h/r?advertise=user:s3cret@h",
        "pccl://h/r?rank=0&x=s3cret",
    ],
)
def test_an_error_repeats_no_secret(url: str) -> None:
    with pytest.raises(ValueError, match=r"\*\*\*") as refused:
        read_url(url, {})
    assert "s3cret" not in str(refused.value)


def test_an_error_about_a_variable_repeats_no_secret() -> None:
    with pytest.raises(ValueError, match=r"PCCL_ADVERTISE=pccl://\*\*\*@h: expected HOST"):
        PeerSettings.read({"PCCL_ADVERTISE": "pccl://user:s3cret@h"})


def test_what_can_be_shown_is_the_same_in_both_languages() -> None:
    for code in range(sys.maxunicode + 1):
        if 0xD800 <= code <= 0xDFFF:  # text does not contain surrogates
            continue
        if _tag_is_refused(chr(code)) == is_printable(chr(code)):
            pytest.fail(f"U+{code:04X}: Python says printable={is_printable(chr(code))}")
    assert not is_printable("a\ud800")
    with pytest.raises(ValueError, match=r'tag "a\\nb" has characters that cannot be shown'):
        _C.set_call_options(tag="a\nb", keep=None, quantize=None, priority=None)


def test_options_of_calls_nest() -> None:
    def options() -> tuple[str, bool, tuple[int, int, int, int], int]:
        return _C.set_call_options(tag=None, keep=None, quantize=None, priority=None)

    eight, none = (8, 256, 8, 0), (0, 0, 0, 0)
    with pccl.tag("outer", priority=3):
        _C.set_call_options(tag=None, keep=True, quantize=None, priority=None)
        with api._call_options(tag="inner", keep=False, quantize=eight, priority=-8):
            assert options() == ("inner", False, eight, -8)
            with api._call_options(), pccl.quantization.quantize(None):
                assert options() == ("inner", False, none, -8)
            assert options() == ("inner", False, eight, -8)
        assert options() == ("outer", True, none, 3)
        with pytest.raises(ValueError, match="257 bytes"), pccl.tag("x" * 257):
            pass
        assert options() == ("outer", True, none, 3)
        with pccl.tag("of the same priority"):
            assert options()[3] == 3
        _C.set_call_options(tag=None, keep=False, quantize=None, priority=None)
    assert options() == ("", False, none, 0)


@pytest.mark.parametrize("priority", [-9, 8, 1 << 40])
def test_a_priority_out_of_range_is_refused(priority: int) -> None:
    text = f"the priority is {priority}, a number from -8 to 7"
    with pytest.raises(ValueError, match=text), pccl.tag("", priority=priority):
        pass


@pytest.mark.parametrize("priority", [1.0, True, "1"])
def test_a_priority_that_is_no_integer_is_refused(priority: object) -> None:
    with (
        pytest.raises(TypeError, match="a priority must be an int"),
        pccl.tag("", priority=priority),
    ):  # type: ignore[arg-type]
        pass


def _tag_is_refused(text: str) -> bool:
    try:
        _C.set_call_options(tag=text, keep=None, quantize=None, priority=None)
    except ValueError:
        return True
    _C.set_call_options(tag="", keep=None, quantize=None, priority=None)
    return False


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("PCCL_PEER_TIMEOUT", "10s", "PCCL_PEER_TIMEOUT=10s: expected a number of seconds"),
        ("PCCL_LOG", "loud", "PCCL_LOG=loud: expected one of error, warning, info, debug"),
        ("PCCL_ON_PEER_LOSS", "keep", "PCCL_ON_PEER_LOSS=keep: expected raise"),
        ("PCCL_INSECURE", "0", "PCCL_INSECURE=0: expected 1; to turn it off, unset the variable"),
    ],
)
def test_refuses_a_variable(variable: str, value: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        PeerSettings.read({variable: value})


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("PCCL_PEERTIMEOUT", "PCCL_PEER_TIMEOUT"),
        ("PCCL_PEER_TIME_OUT", "PCCL_PEER_TIMEOUT"),
        ("PCCL_MASTER_TIMEOUTS", "PCCL_MASTER_TIMEOUT"),
        ("PCCL_LANE", "PCCL_LANES"),
        ("PCCL_LGO", "PCCL_LOG"),
        ("PCCL_PORTRANGE", "PCCL_PORT_RANGE"),
        ("PCCL_ADVERTIZE", "PCCL_ADVERTISE"),
        ("PCCL_SECRETFILE", "PCCL_SECRET_FILE"),
        ("PCCL_INSECUR", "PCCL_INSECURE"),
    ],
)
def test_a_misspelt_variable(name: str, nearest: str) -> None:
    says = f"{name} is no setting of pccl: did you mean {nearest}\\? Known are PCCL_ADVERTISE, "
    with pytest.raises(ValueError, match=says):
        PeerSettings.read({name: "3", "PATH": "/bin"})


def test_an_unknown_variable_is_a_warning_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_settings, "_warned", set())
    variables = {"PCCL_TEST_KILLS": "3", "PCCL_FOO": "5", "PCCL_LANES": "2"}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            assert PeerSettings.read(variables) == PeerSettings(lanes=2)
    known = "and has no effect; known are PCCL_ADVERTISE, "
    assert [str(one.message).partition("PCCL_CALL")[0] for one in said] == [
        f"PCCL_FOO is no setting of pccl {known}",
        f"PCCL_TEST_KILLS is no setting of pccl {known}",
    ]


def variables_of_a_service(service: str) -> dict[str, str]:
    """Return what Kubernetes sets beside a Service of this name with a TCP and a UDP port."""
    name = service.upper().replace("-", "_")
    variables = {
        f"{name}_SERVICE_HOST": "10.96.0.7",
        f"{name}_SERVICE_PORT": "48148",
        f"{name}_SERVICE_PORT_CONTROL": "48148",
        f"{name}_PORT": "tcp://10.96.0.7:48148",
    }
    for protocol, port in (("tcp", "48148"), ("udp", "53")):
        prefix = f"{name}_PORT_{port}_{protocol.upper()}"
        variables |= {
            prefix: f"{protocol}://10.96.0.7:{port}",
            f"{prefix}_PROTO": protocol,
            f"{prefix}_PORT": port,
            f"{prefix}_ADDR": "10.96.0.7",
        }
    return variables


@pytest.mark.parametrize("service", ["pccl", "pccl-master", "pccl-lanes", "pccl-log", "pccl-port"])
def test_variables_of_kubernetes_are_ignored(service: str) -> None:
    variables = variables_of_a_service(service) | {"PCCL_LANES": "2"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert PeerSettings.read(variables) == PeerSettings(lanes=2)


def test_no_setting_has_a_name_of_kubernetes() -> None:
    assert not [name for name in _settings._VARIABLES if _settings._KUBERNETES.fullmatch(name)]


def test_an_empty_variable_counts_as_unset() -> None:
    variables = dict.fromkeys(_settings._VARIABLES, "") | {"PCCL_PEERTIMEOUT": ""}
    assert PeerSettings.read(variables) == PeerSettings()
    assert read_url("pccl://h/r?lanes=2", variables).peer == PeerSettings(lanes=2)
