"""The start scripts of examples/launch: their syntax, their runs with stand-ins, and their page."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from machine import refusal
from programs import Program
from stand_ins import LAUNCH, RUN_S, SECRET, TOKEN, Place

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(LAUNCH.glob("*.sh"))
DOCKERFILES = sorted(LAUNCH.glob("*.Dockerfile"))
MASTER = ROOT / "pccl_backend" / "bin" / "pccl-master"
RUNPOD = {"RUNPOD_POD_ID": "x", "RUNPOD_PUBLIC_IP": "203.0.113.7"}
VAST = {"VAST_CONTAINERLABEL": "C.1", "PUBLIC_IPADDR": "203.0.113.8"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def url() -> Iterator[str]:
    """Listen as a master does; yield the URL of a run."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"pccl://127.0.0.1:{server.getsockname()[1]}/my-run?min_peers=2"


# --- The page -------------------------------------------------------------------------------------

TORCHRUN = "train --standalone --max-restarts=3 train.py\n"
SHOWN = {
    "1. ssh": ["pccl master --host 0.0.0.0 --port ", TORCHRUN, TORCHRUN],
    "2. Runpod and Vast": [TORCHRUN],
    "3. Slurm": ["sbatch --array=0-3 ", *["/launch/peer.sh torchrun", TORCHRUN] * 4],
    "4. SkyPilot": ["sky launch --secret RUN_TOKEN --secret RUN_KEYRING launch/skypilot.yaml\n"],
    "5. Images, and Kubernetes": ["kubectl create secret generic", "kubectl apply", "kubectl logs"],
}


@pytest.mark.parametrize("section", SHOWN)
def test_the_page_shows_commands_that_work(place: Place, url: str, section: str) -> None:
    page = ROOT / "docs" / "launching.md"
    _, found, rest = page.read_text().partition(f"\n## {section}\n")
    assert found
    here = f"{Path(__file__).name}::test_the_page_shows_commands_that_work"
    assert page.read_text().count(here) == len(SHOWN)
    (block,) = re.findall(
        rf"<!-- run by {here} -->\n```sh\n(.*?)```", rest.partition("\n## ")[0], re.S
    )
    (place.path / "train").mkdir()
    (place.path / "train" / "bin").symlink_to(place.path / "bin")
    block = block.replace("pccl://10.0.0.1:48148/my-run?min_peers=2", url)
    variables = {"PCCL_MASTER": url, "RUN_TOKEN": TOKEN} if section.startswith("2.") else {}
    if section.startswith("2."):
        variables |= {**RUNPOD, "RUNPOD_TCP_PORT_70000": "10301"}
    done = place.run("bash", "-euc", block, **variables)
    assert done.returncode == 0, done.stderr
    at = 0
    for text in SHOWN[section]:
        at = place.arguments().index(text, at) + len(text)


# --- Syntax ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_bash_reads_the_script(script: Path) -> None:
    done = subprocess.run(
        ["bash", "-n", script], capture_output=True, text=True, check=False, timeout=RUN_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert os.access(script, os.X_OK) == (script.name != "common.sh")


def test_shellcheck_finds_nothing() -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("SKIPPED: there is no shellcheck (`tools/debian-packages.sh shell`)")
    command = ["shellcheck", "--severity=warning", "--external-sources", *SCRIPTS]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=RUN_S
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_scripts_use_settings_that_exist() -> None:
    settings = re.findall(
        r"^\| `(PCCL_\w+)`", (ROOT / "docs/settings.md").read_text(), re.MULTILINE
    )
    for file in (*SCRIPTS, *LAUNCH.glob("*.yaml")):
        for name in re.findall(r"\bPCCL_[A-Z_]+", file.read_text()):
            assert name in settings, file.name


def test_the_task_of_skypilot() -> None:
    task = yaml.safe_load((LAUNCH / "skypilot.yaml").read_text())
    known = {"name", "num_nodes", "workdir", "resources", "envs", "secrets", "setup", "run"}
    assert set(task) <= known
    assert task["secrets"] == {"RUN_TOKEN": None, "RUN_KEYRING": None}
    assert set(task["envs"]) == {"RUN"}
    for part in ("setup", "run"):
        done = subprocess.run(
            ["bash", "-n"], input=task[part], text=True, check=False, timeout=RUN_S
        )
        assert done.returncode == 0, part


def kubernetes() -> dict[str, Any]:
    documents = yaml.safe_load_all((LAUNCH / "kubernetes.yaml").read_text())
    return {document["kind"]: document for document in documents}


def test_the_objects_of_kubernetes() -> None:
    objects = kubernetes()
    assert set(objects) == {"Service", "StatefulSet", "Job"}  # a Secret would show the token
    master = objects["StatefulSet"]["spec"]
    (container,) = master["template"]["spec"]["containers"]
    (port,) = container["ports"]
    (served,) = objects["Service"]["spec"]["ports"]
    assert served["targetPort"] == container["readinessProbe"]["tcpSocket"]["port"] == port["name"]
    assert objects["Service"]["spec"]["selector"] == master["selector"]["matchLabels"]
    assert master["template"]["metadata"]["labels"] == master["selector"]["matchLabels"]
    job = objects["Job"]["spec"]
    (peer,) = job["template"]["spec"]["containers"]
    variables = {variable["name"]: variable.get("value") for variable in peer["env"]}
    name = objects["Service"]["metadata"]["name"]
    assert variables["PCCL_MASTER"].startswith(f"pccl://{name}:{served['port']}/")
    assert job["template"]["spec"]["restartPolicy"] == "Never"  # podFailurePolicy needs it


@pytest.mark.parametrize("kind", ["StatefulSet", "Job"])
def test_no_pod_of_kubernetes_is_root(kind: str) -> None:
    pod = kubernetes()[kind]["spec"]["template"]["spec"]
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == context["fsGroup"] > 0
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["secret"]["secret"]["defaultMode"] == 0o440  # for the group, which is fsGroup
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        for mount in container["volumeMounts"]:
            assert mount["name"] in volumes or mount["name"] == "journal"


INSTRUCTIONS = {"FROM", "RUN", "COPY", "WORKDIR", "ARG", "ENV", "USER", "EXPOSE", "VOLUME"}
INSTRUCTIONS |= {"ENTRYPOINT", "CMD"}


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile and their arguments, without comments."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (x.partition(" ") for x in joined.split("\n") if x)]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_the_dockerfile_is_sound(dockerfile: Path) -> None:
    found = instructions(dockerfile)
    assert {name for name, _ in found} <= INSTRUCTIONS
    assert found[0] == ("FROM", "debian:12-slim AS build")
    last = max(number for number, (name, _) in enumerate(found) if name == "FROM")
    (user,) = [rest for name, rest in found[last:] if name == "USER"]
    assert int(user.split(":")[0]) > 0
    for name, rest in found:
        if name == "COPY" and not rest.startswith("--from=build"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
        if name in ("ENTRYPOINT", "CMD"):
            assert isinstance(yaml.safe_load(rest), list)
        if name == "RUN":
            read = subprocess.run(["sh", "-n"], input=rest, text=True, check=False, timeout=RUN_S)
            assert read.returncode == 0, rest


def test_the_dockerfiles_copy_all_sources() -> None:
    """The image of the master has the folders that CMake compiles; that of a peer also Python's."""
    copied = {
        path.name: {rest.split()[0] for name, rest in instructions(path) if name == "COPY"}
        for path in DOCKERFILES
    }
    core = {"cmake", "csrc", "cuda", "master"}
    assert core <= copied["master.Dockerfile"]
    assert core | {"pccl_backend", "examples/launch"} <= copied["peer.Dockerfile"]


def test_the_dockerfiles_fit_the_tree() -> None:
    torch = re.search(r"^TORCH_NEWEST := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert torch is not None
    assert ("ARG", f"TORCH={torch[1]}") in instructions(LAUNCH / "peer.Dockerfile")
    assert f"torch=={torch[1]}" in (LAUNCH / "skypilot.yaml").read_text()
    usage = (ROOT / "master" / "main.cc").read_text()
    texts = [(LAUNCH / "master.Dockerfile").read_text(), (LAUNCH / "over_ssh.sh").read_text()]
    texts.append((LAUNCH / "skypilot_node.sh").read_text())
    (command,) = [line for line in texts[0].splitlines() if line.startswith("CMD")]
    lines = [line for text in texts[1:] for line in text.splitlines() if " master --host" in line]
    assert len(lines) == 2
    for line in (command, *lines):
        for option in re.findall(r"--[a-z]+", line.partition("master --host")[2] or line):
            assert f'"  {option} ' in usage, option


def test_the_image_of_the_master_has_all_libraries(tmp_path: Path) -> None:
    """The command of the Dockerfile copies the libraries; the program starts there as its user."""
    if not MASTER.exists():
        pytest.skip(f"SKIPPED: {MASTER} is not built")
    alone = ["unshare", "--mount", "sh", "-ec"]
    if refused := refusal([*alone, "mount --bind /proc /proc"], "mounts"):
        pytest.skip(refused)
    image = tmp_path / "image"
    (copy,) = [rest for name, rest in instructions(LAUNCH / "master.Dockerfile") if "ldd" in rest]
    copy = copy.replace("build/pccl-master", str(MASTER)).replace("/image", str(image))
    subprocess.run(["sh", "-ec", copy], check=True, timeout=RUN_S)
    (image / "proc").mkdir()
    enter = f"mount --rbind /proc {image}/proc; exec chroot --userspec=65532:65532 {image}"
    command = "/usr/local/bin/pccl-master --port 0 --journal /var/lib/pccl/master.journal"
    with Program([*alone, f"{enter} {command}"], stderr=subprocess.STDOUT) as master:
        assert master.line().startswith("pccl master listening on 127.0.0.1:")
        master.terminate()
        assert master.wait() == 0
    assert (image / "var/lib/pccl/master.journal").stat().st_uid == 65532


# --- One peer -------------------------------------------------------------------------------------


def test_a_peer_with_a_token_file(place: Place, url: str) -> None:
    file = str(place.token)
    done = place.run("launch/peer.sh", "train", "a b", PCCL_MASTER=url, PCCL_SECRET_FILE=file)
    assert (done.returncode, done.stdout) == (0, "trains\n"), done.stderr
    assert done.stderr == f"peer.sh: joins {url}\n"
    assert place.environment()["PCCL_SECRET_FILE"] == file
    assert place.arguments() == "train a b\n"


def test_a_peer_becomes_its_command(place: Place, url: str) -> None:
    given = {"PCCL_MASTER": url, "PCCL_INSECURE": "1"}
    assert place.run("launch/peer.sh", "train", "fail", "7", **given).returncode == 7
    with place.start("launch/peer.sh", "train", "wait", **given) as peer:
        assert [peer.line(), peer.line()] == [f"peer.sh: joins {url}\n", "trains\n"]
        peer.terminate()
        assert peer.wait() == 143
    place.await_end_of("peer")


@pytest.mark.parametrize("source", ["RUN_TOKEN", "RUN_TOKEN_FILE"])
def test_a_peer_keeps_its_token_for_itself(place: Place, url: str, source: str) -> None:
    mounted = place.path / "mounted"
    mounted.write_text(f"{TOKEN}\n")
    mounted.chmod(0o440)
    given = {source: TOKEN if source == "RUN_TOKEN" else str(mounted)}
    done = place.run("launch/peer.sh", "train", PCCL_MASTER=url, **given)
    assert done.returncode == 0, done.stderr
    assert (place.path / "mode").read_text() == "600\n"
    assert (place.path / "token.peer").read_text() == f"{TOKEN}\n"
    assert SECRET not in str(place.environment())


@pytest.mark.parametrize(
    ("variables", "arguments", "words"),
    [
        ({"PCCL_MASTER": ""}, ["train"], ["PCCL_MASTER is not set", "such as pccl://"]),
        ({}, [], ["usage: peer.sh COMMAND"]),
        ({"PCCL_MASTER": "host:48148"}, ["train"], ["host:48148 is no URL", "pccl://HOST:PORT"]),
        ({"PCCL_MASTER": f"pccl://h/{TOKEN}"}, ["train"], ["PCCL_MASTER contains a token"]),
        ({}, ["train", TOKEN], ["argument 2 contains a token", "Revoke it"]),
        ({"PCCL_SECRET_FILE": ""}, ["train"], ["no token", "PCCL_SECRET_FILE", "RUN_TOKEN_FILE"]),
        ({"PCCL_SECRET_FILE": "absent"}, ["train"], ["absent is no file", "pccl token new"]),
        ({"PCCL_SECRET_FILE": "open"}, ["train"], ["(mode 644)", "chmod 600 open"]),
        ({"RUN_TOKEN": TOKEN}, ["train"], ["PCCL_SECRET_FILE RUN_TOKEN are all set", "leave one"]),
        (
            {"PCCL_SECRET_FILE": "", "RUN_TOKEN_FILE": "absent"},
            ["train"],
            ["RUN_TOKEN_FILE=absent cannot be read"],
        ),
        ({"MASTER_WAIT_S": "5m"}, ["train"], ["MASTER_WAIT_S=5m", "whole seconds"]),
    ],
)
def test_a_peer_refuses(
    place: Place, url: str, variables: dict[str, str], arguments: list[str], words: list[str]
) -> None:
    (place.path / "open").write_text(TOKEN)
    (place.path / "open").chmod(0o644)
    right = {"PCCL_MASTER": url, "PCCL_SECRET_FILE": str(place.token)}
    done = place.run("launch/peer.sh", *arguments, **{**right, **variables})
    assert (done.returncode, done.stdout, place.arguments()) == (2, "", "")
    for word in words:
        assert word in done.stderr


def test_a_peer_waits_for_its_master(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    url = f"pccl://127.0.0.1:{port}/my-run"
    given = {"PCCL_MASTER": url, "PCCL_INSECURE": "1"}
    done = place.run("launch/peer.sh", "train", **given, MASTER_WAIT_S="0")
    assert (done.returncode, place.arguments()) == (1, "")
    assert f"no master answers at 127.0.0.1:{port} after 0 s" in done.stderr
    with place.start("launch/peer.sh", "train", **given) as peer:
        with pytest.raises(TimeoutError):
            peer.line(timeout=0.3)
        with socket.create_server(("127.0.0.1", port)):
            assert peer.line() == f"peer.sh: joins {url}\n"
            assert peer.wait() == 0


# --- Rented containers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "variables", "address", "listens"),
    [
        ("48201", {**RUNPOD, "RUNPOD_TCP_PORT_48201": "10300"}, "203.0.113.7:10300", 48201),
        ("70000", {**RUNPOD, "RUNPOD_TCP_PORT_70000": "10301"}, "203.0.113.7:10301", 10301),
        ("48201", {**VAST, "VAST_TCP_PORT_48201": "10302"}, "203.0.113.8:10302", 48201),
        (
            "70001",
            {"PUBLIC_IPADDR": "2001:db8::5", "VAST_TCP_PORT_70001": "10303"},
            "[2001:db8::5]:10303",
            10303,
        ),
    ],
)
def test_a_rented_container_advertises_its_outer_address(
    place: Place, inner: str, variables: dict[str, str], address: str, listens: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"pccl://127.0.0.1:{server.getsockname()[1]}/my-run"
        command = ["launch/rented_host.sh", inner, "train"]
        done = place.run(*command, **variables, PCCL_MASTER=url, RUN_TOKEN=TOKEN)
    assert done.returncode == 0, done.stderr
    provider = "Runpod" if "RUNPOD_POD_ID" in variables else "Vast"
    host, port = (name for name in variables if name.endswith(("_IP", "_IPADDR", f"_{inner}")))
    assert done.stderr.splitlines() == [
        f"rented_host.sh: {provider}: the other peers reach this one at {address} "
        f"({host}, {port}); it listens on port {listens}",
        f"peer.sh: joins {url}",
    ]
    got = {name: value for name, value in place.environment().items() if name[:5] == "PCCL_"}
    del got["PCCL_MASTER"], got["PCCL_SECRET_FILE"]
    own_port = {"PCCL_PORT_RANGE": f"{listens}-{listens}"} if listens == 48201 else {}
    assert got == {"PCCL_ADVERTISE": address, **own_port}


@pytest.mark.parametrize(
    ("inner", "variables", "words"),
    [
        ("48201", RUNPOD, ["RUNPOD_TCP_PORT_48201 is not set", "add 48201 to its exposed TCP"]),
        ("70000", VAST, ["VAST_TCP_PORT_70000 is not set", "`-p 70000:70000`"]),
        (
            "70000",
            {"RUNPOD_POD_ID": "x", "RUNPOD_TCP_PORT_70000": "10301"},
            ["RUNPOD_PUBLIC_IP is not set", "no public address"],
        ),
        ("70000", {"VAST_TCP_PORT_70000": "10301"}, ["PUBLIC_IPADDR is not set"]),
        ("70000", {**RUNPOD, "RUNPOD_TCP_PORT_70000": "x"}, ["RUNPOD_TCP_PORT_70000=x is no port"]),
        ("70000", {**RUNPOD, "RUNPOD_TCP_PORT_70000": "70000"}, ["=70000 is no port from 1 to"]),
        (
            "70000",
            {**VAST, "PUBLIC_IPADDR": "203.0.113.8 203.0.113.9", "VAST_TCP_PORT_70000": "10301"},
            ["PUBLIC_IPADDR=203.0.113.8 203.0.113.9 is no address"],
        ),
        ("66000", RUNPOD, ["the inner port is 66000", "1 to 65535, or 70000"]),
        ("train", RUNPOD, ["the inner port is train"]),
        ("70000", {}, ["neither Runpod nor Vast", "PCCL_ADVERTISE by hand", "peer.sh"]),
        ("70000", {**RUNPOD, "PCCL_ADVERTISE": "h:1"}, ["PCCL_ADVERTISE", "unset both"]),
    ],
)
def test_a_rented_container_names_the_wrong_variable(
    place: Place, url: str, inner: str, variables: dict[str, str], words: list[str]
) -> None:
    command = ["launch/rented_host.sh", inner, "train"]
    done = place.run(*command, **variables, PCCL_MASTER=url, RUN_TOKEN=TOKEN)
    assert (done.returncode, place.arguments()) == (2, "")
    for word in words:
        assert word in done.stderr


# --- ssh ------------------------------------------------------------------------------------------

URL = "pccl://10.0.0.1:48148/my-run?min_peers=2"
OVER_SSH = ["launch/over_ssh.sh", "--url", URL, "--token", "alice.token"]


def test_ssh_starts_a_peer_on_each_host(place: Place) -> None:
    command = [*OVER_SSH, "tokyo", "alice@oslo", "--", "train", "it's", "a  b"]
    done = place.run(*command)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["alice@oslo: trains", "tokyo: trains"]
    assert place.arguments().count("train it's a  b\n") == 2
    for host in ("tokyo", "oslo"):
        assert place.environment(host)["PCCL_MASTER"] == URL
        assert (place.path / f"token.{host}").read_text() == f"{TOKEN}\n"
        assert not Path(place.environment(host)["PCCL_SECRET_FILE"]).exists()  # removed at the end
    assert (place.path / "mode").read_text() == "600\n"
    assert not list(place.path.glob("tmp.*"))


@pytest.mark.parametrize("where", ["here", "osaka"])
def test_ssh_starts_a_master(place: Place, where: str) -> None:
    done = place.run(*OVER_SSH, "--master", where, "tokyo", "oslo", "--", "train")
    assert done.returncode == 0, done.stderr
    assert "master: pccl master listening on 0.0.0.0:48148" in done.stdout.splitlines()
    assert "pccl master --host 0.0.0.0 --port 48148\n" in place.arguments()
    assert ("osaka" in place.arguments()) == (where == "osaka")
    place.await_end_of("master")


def test_ssh_ends_all_when_one_fails(place: Place) -> None:
    fails = '[ "$PCCL_NAME" != oslo ] && exec train wait; exec train fail 3'
    command = [*OVER_SSH, "--master", "here", "tokyo", "oslo", "--", "bash", "-c", fails]
    done = place.run(*command)
    assert done.returncode == 1
    assert "the peer on oslo ended with status 3\n" in done.stderr
    assert "ends the others; with --keep-going" in done.stderr
    place.await_end_of("master", *(["tokyo"] if (place.path / "env.tokyo").exists() else []))


def test_ssh_goes_on_when_asked(place: Place) -> None:
    fails = '[ "$PCCL_NAME" != oslo ] || exec train fail 3; sleep 0.5; exec train'
    done = place.run(*OVER_SSH, "--keep-going", "oslo", "tokyo", "--", "bash", "-c", fails)
    assert done.returncode == 1
    assert "the peer on oslo ended with status 3\n" in done.stderr
    assert "tokyo: trains\n" in done.stdout


def test_ssh_reports_a_host_that_does_not_answer(place: Place) -> None:
    done = place.run(*OVER_SSH, "unreachable", "--", "train")
    assert done.returncode == 1
    assert "unreachable: ssh: connect to host unreachable: refused" in done.stderr
    assert "the peer on unreachable ended with status 255 (255: ssh itself failed)" in done.stderr


def test_ssh_reports_a_master_that_does_not_start(place: Place) -> None:
    command = [*OVER_SSH, "--master", "here", "tokyo", "--", "train"]
    done = place.run(*command, MASTER_FAILS="1")
    assert done.returncode == 1
    assert "master: pccl master: the port is taken" in done.stderr
    assert "the master has not started" in done.stderr
    assert "train" not in place.arguments().replace("launch", "")


@pytest.mark.parametrize(
    ("number", "status", "line"),
    [
        (signal.SIGINT, 130, "over_ssh.sh: interrupted: ends the peers\n"),
        (signal.SIGTERM, 143, "over_ssh.sh: ends the peers\n"),
        (signal.SIGKILL, -9, ""),
    ],
)
def test_ssh_ends_all_at_a_signal(
    place: Place, number: signal.Signals, status: int, line: str
) -> None:
    """Ctrl-C reaches the whole process group, the other signals the script alone."""
    command = [*OVER_SSH, "--master", "osaka", "tokyo", "oslo", "--", "train", "wait"]
    with place.start(*command) as script:
        said = [script.line() for _ in range(3)]
        assert sorted(said[1:]) == ["oslo: trains\n", "tokyo: trains\n"]
        if number == signal.SIGINT:
            os.killpg(script.pid, number)
        else:
            script.send_signal(number)
        assert script.wait() == status
        place.await_end_of("tokyo", "oslo", "master")
        rest, _ = script.communicate()
    for text in (line, "oslo: leaves\n", "tokyo: leaves\n"):
        assert text in rest
    for host in ("oslo", "tokyo"):  # its shell has gone on to its end
        assert not Path(place.environment(host)["PCCL_SECRET_FILE"]).exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tokyo", "--", "train"], ["needed are --url, --token"]),
        ([*OVER_SSH[1:], "--", "train"], ["at least one HOST"]),
        ([*OVER_SSH[1:], "tokyo"], ["-- COMMAND"]),
        ([*OVER_SSH[1:], "--hosts", "tokyo", "--", "train"], ["--hosts is no option", "--help"]),
        (["--url"], ["--url needs a value"]),
        (["--url", "tokyo", "--token", "alice.token", "h", "--", "train"], ["tokyo is no URL"]),
        (["--url", URL, "--token", "open", "h", "--", "train"], ["(mode 644)", "chmod 600 open"]),
        (["--url", URL, "--token", TOKEN, "h", "--", "t"], ["argument 4 contains a token"]),
        (
            [*OVER_SSH[1:], "--master", "here", "--pccl", "absent", "tokyo", "--", "train"],
            ["there is no absent on this machine"],
        ),
    ],
)
def test_ssh_refuses(place: Place, arguments: list[str], words: list[str]) -> None:
    (place.path / "open").write_text(TOKEN)
    (place.path / "open").chmod(0o644)
    done = place.run(OVER_SSH[0], *arguments)
    assert (done.returncode, place.arguments()) == (2, "")
    for word in words:
        assert word in done.stderr


# --- Slurm ----------------------------------------------------------------------------------------


def slurm(place: Place, url: str) -> dict[str, str]:
    """Copy the script as sbatch does; return the variables of a task of an array."""
    (place.path / "spool").mkdir()
    shutil.copy(LAUNCH / "slurm.sh", place.path / "spool" / "slurm_script")
    return {
        "SLURM_SUBMIT_DIR": str(place.path),
        "SLURM_JOB_ID": "70",
        "SLURM_ARRAY_JOB_ID": "70",  # one of the tasks has the number of the whole array
        "SLURM_ARRAY_TASK_ID": "2",
        "PCCL_MASTER": url,
        "PCCL_SECRET_FILE": str(place.token),
    }


def test_slurm_runs_a_peer(place: Place, url: str) -> None:
    job = {**slurm(place, url), "SLURM_RESTART_COUNT": "2"}
    done = place.run("spool/slurm_script", "train", "ok", **job)
    assert done.returncode == 0, done.stderr
    assert "slurm.sh: job 70_2, start 3, peer " in done.stderr
    assert place.arguments() == (
        f"srun --ntasks=1 {place.path}/launch/peer.sh train ok\ntrain ok\n"
    )
    assert place.run("spool/slurm_script", "train", "fail", "5", **job).returncode == 5


def test_slurm_requeues_a_job_whose_time_is_up(place: Place, url: str) -> None:
    job = {**slurm(place, url), "PCCL_NAME": "peer"}
    with place.start("spool/slurm_script", "train", "wait", **job) as script:
        while script.line() != "trains\n":
            pass
        script.send_signal(signal.SIGUSR1)  # to the batch shell only: --signal=B:USR1
        assert script.wait() == 0
    place.await_end_of("peer")
    assert place.arguments().endswith("scontrol requeue 70_2\n")


def test_slurm_has_its_options() -> None:
    lines = (LAUNCH / "slurm.sh").read_text().splitlines()
    first_command = lines.index("set -euo pipefail")
    options = [line.split()[1] for line in lines[:first_command] if line.startswith("#SBATCH ")]
    assert {"--requeue", "--open-mode=append", "--signal=B:USR1@120"} <= set(options)


@pytest.mark.parametrize(
    ("variables", "arguments", "word"),
    [
        ({"SLURM_SUBMIT_DIR": "elsewhere"}, ["train"], "set LAUNCH to the folder"),
        ({"SLURM_JOB_ID": ""}, ["train"], "SLURM_JOB_ID is not set: this script is for sbatch"),
        ({}, [], "usage: sbatch"),
        ({"PCCL_MASTER": ""}, ["train"], "PCCL_MASTER is not set"),
    ],
)
def test_slurm_refuses(
    place: Place, url: str, variables: dict[str, str], arguments: list[str], word: str
) -> None:
    job = {**slurm(place, url), **variables}
    done = place.run("spool/slurm_script", *arguments, **job)
    assert done.returncode == 2
    assert word in done.stderr


# --- SkyPilot -------------------------------------------------------------------------------------


def sky(place: Place, rank: int) -> dict[str, str]:
    """Return the variables of a node whose head has an address of its own on loopback."""
    number = os.getpid() % 65536
    head = f"127.{77 + rank}.{number >> 8}.{number & 255}"
    return {
        "FAKE_ADDRESS": head,
        "SKYPILOT_NODE_IPS": f"{head}\n10.0.0.2",
        "SKYPILOT_NODE_RANK": str(rank),
        "RUN": "my-run?min_peers=2",
        "RUN_TOKEN": TOKEN,
        "RUN_KEYRING": "a2V5cmluZw==",
    }


def run_of_skypilot() -> str:
    text: str = yaml.safe_load((LAUNCH / "skypilot.yaml").read_text())["run"]
    return text


def test_the_head_of_skypilot_has_the_master(place: Place) -> None:
    node = sky(place, 0)
    done = place.run("bash", "-c", run_of_skypilot(), **node)
    assert done.returncode == 0, done.stderr
    state = place.path / ".local" / "state" / "pccl"
    assert (state / "keyring").read_text() == "keyring"
    assert (state / "keyring").stat().st_mode & 0o777 == 0o600
    files = f"--keyring {state}/keyring --journal {state}/master.journal"
    assert f"pccl master --host 0.0.0.0 {files}\n" in place.arguments()
    assert place.arguments().count("pccl runs") == 2  # until no peer is left
    assert (
        place.environment()["PCCL_MASTER"] == f"pccl://{node['FAKE_ADDRESS']}:48148/{node['RUN']}"
    )
    assert not {"RUN_TOKEN", "RUN_KEYRING"} & set(place.environment())
    place.await_end_of("master")


def test_another_node_of_skypilot_has_a_peer(place: Place) -> None:
    node = sky(place, 1)
    with socket.create_server((node["FAKE_ADDRESS"], 48148)):
        done = place.run("bash", "-c", run_of_skypilot(), **node)
    assert done.returncode == 0, done.stderr
    assert "pccl master" not in place.arguments()
    assert "RUN_KEYRING" not in place.environment()
    assert (place.path / "token.peer").read_text() == f"{TOKEN}\n"


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"SKYPILOT_NODE_IPS": ""}, "SKYPILOT_NODE_IPS is not set"),
        ({"RUN": ""}, "RUN is not set"),
        ({"RUN_TOKEN": ""}, "launch with --secret RUN_TOKEN"),
        ({"RUN_KEYRING": ""}, "launch with --secret RUN_KEYRING"),
        ({"RUN_KEYRING": "{}"}, "RUN_KEYRING is not base64"),
    ],
)
def test_skypilot_refuses(place: Place, variables: dict[str, str], word: str) -> None:
    done = place.run("bash", "-c", run_of_skypilot(), **{**sky(place, 0), **variables})
    assert done.returncode == 2
    assert word in done.stderr
    assert "train" not in place.arguments()


# --- The common functions -------------------------------------------------------------------------


def test_a_program_that_does_not_end_is_killed(place: Place) -> None:
    script = """
. launch/common.sh
bash -c 'trap "" TERM; exec sleep 30' & stubborn=$!
sleep 0.2 & quick=$!
end_within 1 "$stubborn" "$quick"
wait "$stubborn"
"""
    assert place.run("bash", "-c", script).returncode == 128 + signal.SIGKILL
