"""`pccl token`: keyrings, those that are refused, and masters that have one."""

from __future__ import annotations

import os
import re
import stat
import sys
import threading
from pathlib import Path

import pytest
from keyrings import HEAD, HEAD_2, SECRET, TEXT, TOKEN, line, new, revoke, serving, shows, written
from test_runs import PCCL, Play, pccl, play
from world import run_program

from pccl_backend import _private_file, _tokens
from pccl_backend._tokens import Token
from pccl_backend.command import keyring_file

__all__ = ["play"]  # a fixture


@pytest.fixture
def keyring(tmp_path: Path) -> Path:
    """Return the place of a keyring that does not exist yet."""
    return tmp_path / "folder" / "keyring"


def listed(keyring: Path) -> list[list[str]]:
    """Return the cells of `pccl token list`, without its head; the times are left out."""
    done = pccl("token", "list", "--keyring", keyring)
    assert done.returncode == 0, done.stderr
    head, *rows = [re.split("  +", line) for line in done.stdout.splitlines()]
    assert head == ["id", "name", "role", "runs", "created"], done.stdout
    return [row[:4] for row in rows]


# --- pccl token -----------------------------------------------------------------------------------


def test_a_token_is_printed_once(keyring: Path) -> None:
    done = pccl("token", "new", "alice", "--keyring", keyring)
    assert done.returncode == 0, done.stderr
    token = Token.parse(done.stdout.removesuffix("\n"))
    assert done.stderr.startswith(
        f"the line above has the token {token.id} of alice, for all runs: "
    )
    assert f"The keyring {keyring} has it, too" in done.stderr
    assert not shows(done.stderr, token)
    assert listed(keyring) == [[token.id, "alice", "peer", "all runs"]]
    assert not shows(pccl("token", "list", "--keyring", keyring).stdout, token)


def test_tokens_of_one_name_and_of_some_runs(keyring: Path) -> None:
    first, second = new(keyring, "alice"), new(keyring, "alice", "--run", "night")
    third = new(keyring, "東京 3", "--run", "b", "--run", "a c", "--run", "b")
    assert listed(keyring) == [
        [first.id, "alice", "peer", "all runs"],
        [second.id, "alice", "peer", "night"],
        [third.id, "東京 3", "peer", "b, a c"],
    ]
    assert len({first.id, second.id, third.id, first.secret, second.secret, third.secret}) == 6


def test_the_token_of_an_observer(keyring: Path) -> None:
    written(keyring, HEAD, line())  # of version 1, without roles
    done = pccl("token", "new", "bob", "--role", "observer", "--keyring", keyring)
    assert done.returncode == 0, done.stderr
    assert "bring it to the machine of `pccl status URL`, in a file" in done.stderr
    token = Token.parse(done.stdout.removesuffix("\n"))
    assert listed(keyring) == [
        [TOKEN.id, "alice", "peer", "all runs"],
        [token.id, "bob", "observer", "all runs"],
    ]
    assert keyring.read_text().startswith('{"pccl_keyring":2,"tokens":2}\n')
    wrong = pccl("token", "new", "bob", "--role", "admin", "--keyring", keyring)
    assert wrong.returncode == 2
    assert "invalid choice: 'admin' (choose from 'peer', 'observer')" in wrong.stderr


def test_a_second_token_of_one_name_is_no_surprise(keyring: Path) -> None:
    first = new(keyring, "alice")
    new(keyring, "bob")
    done = pccl("token", "new", "alice", "--keyring", keyring)
    assert done.returncode == 0, done.stderr
    assert f"alice had a token before: {first.id}. `pccl token revoke ID` ends" in done.stderr


def test_names_do_not_command_the_terminal(keyring: Path) -> None:
    new(keyring, "東京")
    command = [*PCCL, "token", "list", "--keyring", str(keyring)]
    done = run_program(command, environment={"PYTHONIOENCODING": "ascii"})
    assert "  \\u6771\\u4eac  " in done.stdout, done.stderr


def test_a_keyring_is_private_whatever_the_umask(keyring: Path) -> None:
    before = os.umask(0)
    try:
        for mask in (0, 0o077):
            os.umask(mask)
            out = keyring.parent / f"alice-{mask}"
            done = pccl("token", "new", "alice", "--keyring", keyring, "--out", out)
            assert done.returncode == 0, done.stderr
            assert stat.S_IMODE(keyring.parent.stat().st_mode) == 0o700
            files = list(keyring.parent.iterdir())
            assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files), files
    finally:
        os.umask(before)
    names = {file.name for file in keyring.parent.iterdir()}
    assert names == {"keyring", "keyring.lock", "alice-0", "alice-63"}


@pytest.mark.parametrize("state", [None, "relative", "state"])
def test_the_default_place(tmp_path: Path, state: str | None) -> None:
    absolute = {"state": str(tmp_path / "state")}
    home = {"HOME": str(tmp_path), "XDG_STATE_HOME": absolute.get(state or "", state or "")}
    assert pccl("token", "new", "alice", **home).returncode == 0
    folder = tmp_path / ("state" if state == "state" else ".local/state")
    assert listed(folder / "pccl" / "keyring")
    assert pccl("token", "list", **home).stdout.count("alice") == 1


# --- A file for the token -------------------------------------------------------------------------


def test_a_token_in_a_file(keyring: Path, tmp_path: Path) -> None:
    out = tmp_path / "alice.token"
    done = pccl("token", "new", "alice", "--keyring", keyring, "--out", out)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    (entry,) = keyring_file.read(keyring)
    assert _tokens.read_secret_file(str(out)) == entry.token
    assert not shows(done.stderr, entry.token)


def test_a_file_is_not_overwritten(keyring: Path, tmp_path: Path) -> None:
    diary = written(tmp_path / "diary", "dear diary")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nothing")
    for out in (diary, link, tmp_path):
        done = pccl("token", "new", "alice", "--keyring", keyring, "--out", out)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"{out} exists already: name a new file" in done.stderr
    with pytest.raises(_private_file.PrivateFileError, match="exists already"):
        _private_file.create(link, b"x")
    assert diary.read_text() == "dear diary\n"
    assert not keyring.exists()


def test_a_token_that_cannot_be_handed_out_is_no_token(keyring: Path, tmp_path: Path) -> None:
    new(keyring, "alice")
    before = keyring.read_text()
    nowhere = tmp_path / "nowhere" / "bob.token"
    done = pccl("token", "new", "bob", "--keyring", keyring, "--out", nowhere)
    assert done.returncode == 1
    assert f"{nowhere} cannot be made: No such file or directory. The new token" in done.stderr
    assert keyring.read_text() == before
    command = 'exec "$@" >/dev/full'
    words = [*PCCL, "token", "new", "bob", "--keyring", str(keyring)]
    done = run_program(["sh", "-c", command, "sh", *words])
    assert done.returncode == 1
    assert "stdout cannot be written: No space left on device. The new token" in done.stderr
    assert "Traceback" not in done.stderr
    assert keyring.read_text() == before


# --- Revoking -------------------------------------------------------------------------------------


def test_a_token_is_revoked_by_its_id_or_its_name(keyring: Path) -> None:
    first, second, bob = (new(keyring, name) for name in ("alice", "alice", "bob"))
    done = revoke(keyring, first.id)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"revoked token {first.id} of alice\n"
    assert done.stderr == (
        f"no master was told: none with the journal {keyring.parent / 'nobody'} runs here. A "
        f"running master that uses the keyring {keyring} notices the change within a second; a "
        "master on another machine has a keyring of its own, which is as it was\n"
    )
    third = new(keyring, "alice")
    assert revoke(keyring, "alice").stdout.splitlines()[:2] == [
        f"revoked token {second.id} of alice",
        f"revoked token {third.id} of alice",
    ]
    assert listed(keyring) == [[bob.id, "bob", "peer", "all runs"]]
    assert revoke(keyring, "bob").returncode == 0
    done = pccl("token", "list", "--keyring", keyring)
    assert (done.returncode, done.stdout) == (0, "this keyring has no tokens\n")


def test_a_token_that_is_not_there(keyring: Path) -> None:
    done = revoke(keyring, "alice")
    assert done.returncode == 1
    assert f"there is no keyring {keyring}: `pccl token new` makes one" in done.stderr
    assert not keyring.parent.exists()
    new(keyring, "alice")
    done = revoke(keyring, "Alice")
    assert (done.returncode, done.stdout) == (1, "")
    assert "has no token with the id or the name 'Alice': `pccl token list` shows" in done.stderr


def test_a_text_that_is_an_id_and_a_name(keyring: Path) -> None:
    """A person can write such a keyring. `pccl token new` does not."""
    written(keyring, HEAD, line(), line(id="bobbobbob", name=TOKEN.id), line(id="carol000"))
    done = pccl("token", "new", "carol000", "--keyring", keyring)
    assert done.returncode == 1
    assert "carol000 is the id of a token: choose another name" in done.stderr
    before = keyring.read_text()
    done = revoke(keyring, TOKEN.id)
    assert done.returncode == 1
    said = f"{TOKEN.id} is the id of a token of alice, and the name of others (bobbobbob)"
    assert said in done.stderr
    assert keyring.read_text() == before
    assert revoke(keyring, "bobbobbob").returncode == 0
    assert revoke(keyring, TOKEN.id).returncode == 0


def test_a_new_id_is_taken_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = iter("a" * 12 + "b" * 12 + "c" * 12)
    monkeypatch.setattr(_tokens.secrets, "choice", lambda _: next(letters))
    assert Token.new({"a" * 12, "b" * 12}).id == "c" * 12


# --- Keyrings that are refused, by the command and by the master ----------------------------------


def refusals(keyring: Path) -> list[str]:
    """Let a master, and each command, refuse a keyring; return their messages."""
    before = keyring.read_bytes() if keyring.is_file() else None
    commands = [
        pccl("master", "--port", "0", "--keyring", keyring),
        pccl("token", "list", "--keyring", keyring),
        pccl("token", "new", "bob", "--keyring", keyring),
        revoke(keyring, "alice"),
    ]
    for done in commands:
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert not shows(done.stderr), done.stderr
        assert "Traceback" not in done.stderr
    assert before is None or keyring.read_bytes() == before
    return [done.stderr for done in commands]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], 'is damaged in line 1, which must be {"pccl_keyring":2}: put back a whole copy'),
        ([line()], "is damaged in line 1"),
        (["[1]"], "is damaged in line 1"),
        (['{"pccl_keyring":true}'], "is damaged in line 1"),
        (['{"pccl_keyring":1,"tokens":"1"}', line()], "line 1: its tokens must be the number of"),
        (['{"pccl_keyring":1,"tokens":-1}'], "line 1: its tokens must be the number of the lines"),
        (['{"pccl_keyring":3}'], "is of version 3, and this pccl reads versions 1 and 2: install"),
        ([HEAD_2, line()], "its fields must be id, name, role, runs, created and secret"),
        ([HEAD_2, line(role="admin")], 'its role is "admin", and must be "peer" or "observer"'),
        ([HEAD_2, line(role=SECRET)], 'in line 2: its role must be "peer" or "observer"'),
        ([HEAD_2, line(role=7)], 'in line 2: its role must be "peer" or "observer"'),
        ([HEAD_2, line(role=["peer"])], 'in line 2: its role must be "peer" or "observer"'),
        ([HEAD, line(role="peer")], "its fields must be id, name, runs, created and secret"),
        ([HEAD, line(), line()], "in line 3: an earlier line has the same id. Put back a whole"),
        ([HEAD, "", line()], "in line 2: it is no JSON object"),
        ([HEAD, line()[:-9]], "in line 2: it is no JSON object"),
        ([HEAD, "[" * 100_000], "in line 2: it is no JSON object"),
        ([HEAD, line(admin=True)], "its fields must be id, name, runs, created and secret"),
        ([HEAD, "{}"], "its fields must be id, name, runs, created and secret"),
        ([HEAD, line(id="alice")], "its id must have 8 to 16 lowercase letters and digits"),
        ([HEAD, line(id=SECRET)], "its id must have 8 to 16 lowercase letters and digits"),
        ([HEAD, line(id=7)], "its id must have 8 to 16 lowercase letters and digits"),
        ([HEAD, line(name="")], "its name must have 1 to 64 printable bytes"),
        ([HEAD, line(name="ä" * 33)], "its name must have 1 to 64 printable bytes"),
        ([HEAD, line(name="a\u202eb")], "its name must have 1 to 64 printable bytes"),
        ([HEAD, line(name=None)], "its name must have 1 to 64 printable bytes"),
        ([HEAD, line(runs=[])], "its runs must be null, or a list of names that have 1 to 128"),
        ([HEAD, line(runs="night")], "its runs must be null, or a list of names"),
        ([HEAD, line(runs=["n" * 129])], "its runs must be null, or a list of names"),
        ([HEAD, line(runs=[SECRET, ""])], "its runs must be null, or a list of names"),
        ([HEAD, line(created=-1)], "its created must be a number of seconds"),
        ([HEAD, line(created=1.5)], "its created must be a number of seconds"),
        ([HEAD, line(created=True)], "its created must be a number of seconds"),
        ([HEAD, line(secret=TOKEN.secret.hex() + " ")], "its secret must have 64 hexadecimal"),
        ([HEAD, line(secret=TOKEN.secret.hex()[2:])], "its secret must have 64 hexadecimal"),
        ([HEAD, line(secret=SECRET)], "its secret must have 64 hexadecimal digits"),
        ([HEAD, line(secret=None)], "its secret must have 64 hexadecimal digits"),
    ],
)
def test_a_damaged_keyring(keyring: Path, lines: list[str], says: str) -> None:
    for said in refusals(written(keyring, *lines)):
        assert f"the keyring {keyring} is " in said
        assert says in said


def test_a_keyring_that_was_cut_between_two_lines(keyring: Path) -> None:
    """Each line that is left is right, and the tokens of the others would be gone."""
    for name in ("alice", "bob", "carol"):
        new(keyring, name)
    lines = keyring.read_text().splitlines()
    for left, tokens in ((3, "2 tokens"), (2, "1 token"), (1, "0 tokens")):
        for said in refusals(written(keyring, *lines[:left])):
            assert f"the keyring {keyring} has {tokens}, and its first line says 3: put " in said
    written(keyring, HEAD_2, *lines[1:3])  # a person has written it
    assert len(listed(keyring)) == 2


def test_a_keyring_that_others_can_use(keyring: Path) -> None:
    written(keyring, HEAD, line())
    for mode in (0o640, 0o604, 0o620, 0o602):
        keyring.chmod(mode)
        for said in refusals(keyring):
            assert f"the keyring {keyring} is open to others (mode {mode:04o}): run `chmod" in said


def test_a_keyring_that_is_no_file(keyring: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other", HEAD)
    keyring.parent.mkdir()
    keyring.symlink_to(other)
    for said in refusals(keyring):
        assert f"the keyring {keyring} is a symbolic link" in said
    assert other.read_text() == f"{HEAD}\n"
    keyring.unlink()
    os.mkfifo(keyring, 0o600)
    for said in refusals(keyring):
        assert f"the keyring {keyring} is a FIFO" in said
    keyring.unlink()
    keyring.mkdir()
    for said in refusals(keyring):
        assert f"the keyring {keyring} is a directory" in said


def test_a_keyring_of_another_user(keyring: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    written(keyring, HEAD, line())
    os.chown(keyring, 12345, 12345)
    for said in refusals(keyring):
        assert f"the keyring {keyring} belongs to another user (12345): " in said


def test_a_keyring_that_is_too_large(keyring: Path) -> None:
    written(keyring, HEAD, " " * (1 << 20))
    master, *others = refusals(keyring)
    assert "takes 1048596 bytes, and at most 1048576 are read" in master
    assert all("has more than 1048576 bytes" in said for said in others)


def test_a_keyring_does_not_grow_too_large(keyring: Path) -> None:
    lines = [line(id=f"{number:08}", runs=["n" * 128]) for number in range(3400)]
    written(keyring, HEAD, *lines)
    room = (1 << 20) - keyring.stat().st_size
    assert 0 < room < (1 << 20)
    runs = [f"{'r' * 120}{number}" for number in range(room // 100)]
    with pytest.raises(
        keyring_file.KeyringError, match="at most 1048576: revoke tokens that nobody"
    ):
        keyring_file.add(keyring, name="alice", role="peer", runs=runs, created=0)
    assert len(keyring_file.read(keyring)) == len(lines)


# --- Writing --------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_old_keyring(keyring: Path) -> None:
    """A limit on the size of files acts as a full disk, after some bytes."""
    new(keyring, "alice")
    before = keyring.read_bytes()
    program = f"""
import resource, sys
from pccl_backend.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 20},) * 2)
sys.exit(main(sys.argv[1:]))
"""
    words = ["token", "new", "bob", "--keyring", str(keyring)]
    done = run_program([sys.executable, "-c", program, *words])
    assert (done.returncode, done.stdout) == (1, "")
    said = "is as it was, because it cannot be replaced: keyring.tmp cannot be written: File too"
    assert f"the keyring {keyring} {said}" in done.stderr
    assert keyring.read_bytes() == before
    assert {file.name for file in keyring.parent.iterdir()} == {"keyring", "keyring.lock"}


@pytest.mark.parametrize("step", ["fsync", "fchmod", "rename"])
def test_a_step_that_fails_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = written(tmp_path / "file", "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(_private_file.PrivateFileError, match=r"is as it was, .*No space left"):
        _private_file.replace(path, b"new")
    if step != "rename":
        with pytest.raises(_private_file.PrivateFileError, match="cannot be written: No space"):
            _private_file.create(tmp_path / "other", b"new")
    monkeypatch.undo()
    assert path.read_text() == "old\n"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
    (tmp_path / "file.tmp").symlink_to(path)  # what somebody else, or an earlier attempt, has left
    _private_file.replace(path, b"new")
    assert path.read_text() == "new"
    assert not path.is_symlink()


def test_a_replaced_file_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content is there before the name is, and the name before the end."""
    steps = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(
        os, "fsync", lambda fd: steps.append(os.readlink(f"/proc/self/fd/{fd}")) or fsync(fd)
    )
    monkeypatch.setattr(os, "rename", lambda *names: steps.append("rename") or rename(*names))
    _private_file.replace(tmp_path / "file", b"new")
    assert steps == [str(tmp_path / "file.tmp"), "rename", str(tmp_path)]


def test_writers_wait_for_each_other(keyring: Path) -> None:
    def write() -> None:
        for _ in range(5):
            keyring_file.add(keyring, name="alice", role="peer", runs=(), created=0)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(keyring_file.read(keyring)) == 20


def test_a_writer_does_not_wait_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "file"
    says = r"is being changed by another process, for more than 0\.1 s: try again"
    second = _private_file.locked(path, timeout=0.1)
    with _private_file.locked(path), pytest.raises(_private_file.PrivateFileError, match=says):
        second.__enter__()
    with _private_file.locked(path, timeout=0.1):
        pass


# --- Wrong arguments ------------------------------------------------------------------------------
def test_a_token_as_an_argument(keyring: Path) -> None:
    for words in (
        ["token", "revoke", TEXT],
        ["token", "new", TEXT],
        ["master", f"--keyring={TEXT}"],
        [TEXT],
    ):
        done = pccl(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"argument {len(words)} contains a token." in done.stderr
        assert f"revoke it: `pccl token revoke {TOKEN.id}`" in done.stderr
        assert not shows(done.stderr)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "required: COMMAND"),
        (["add"], "invalid choice: 'add'"),
        (["new"], "required: NAME"),
        (["new", ""], "the name is empty"),
        (["new", "n" * 65], "the name is 65 bytes long; at most 64 fit"),
        (["new", "a\nb"], "the name must be printable, and it contains '\\n'"),
        (["new", "\udcff"], "the name must be printable, and it contains '\\udcff'"),
        (["new", "alice", "--run", ""], "the name is empty"),
        (["new", "alice", "--run", "n" * 129], "the name is 129 bytes long; at most 128 fit"),
        (["new", "alice", "--run", "a/b"], "the name contains a slash"),
        (["new", "alice", "--out", ""], "the path is empty"),
        (["list", "--keyring", ""], "the path is empty"),
        (["list", "alice"], "unrecognized arguments: alice"),
        (["revoke"], "required: NAME-or-ID"),
        (["revoke", "alice", "--port", "0"], "port is '0', must be a number from 1 to 65535"),
    ],
)
def test_mistakes(words: list[str], says: str) -> None:
    done = pccl("token", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_without_a_home(keyring: Path) -> None:
    nowhere = {"HOME": "", "XDG_STATE_HOME": ""}
    done = pccl("token", "list", **nowhere)
    assert done.returncode == 2
    assert "HOME is not set: give --keyring PATH" in done.stderr
    new(keyring, "alice")
    done = pccl("token", "revoke", "alice", "--keyring", keyring, **nowhere)
    assert done.returncode == 2
    assert "HOME is not set: give --journal PATH" in done.stderr
    assert listed(keyring), "nothing is changed before it is clear whom to tell"


# --- A master with a keyring ----------------------------------------------------------------------


def test_a_master_says_whom_it_admits(keyring: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        new(keyring, "alice")
        with serving(tmp_path, "--keyring", keyring) as master:
            assert master.line().startswith("pccl master listening on 127.0.0.1:")
            tokens = "1 token" if number == 1 else "2 tokens"
            assert master.line() == f"admits only peers with a token ({tokens} in {keyring})\n"
            assert master.line().startswith("remembers its runs in ")


def test_a_master_on_loopback_asks_for_no_token(keyring: Path, tmp_path: Path) -> None:
    new(keyring, "alice")
    with serving(tmp_path) as master:
        assert master.line().startswith("pccl master listening on 127.0.0.1:")
        assert master.line() == "admits everybody on this machine, in plain text\n"


def test_a_master_beyond_this_machine_asks_for_a_token(tmp_path: Path) -> None:
    home = {"XDG_STATE_HOME": str(tmp_path)}
    place = tmp_path / "pccl" / "keyring"
    done = pccl("master", "--host", "0.0.0.0", "--port", "0", **home)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"listening on 0.0.0.0 needs a keyring, and there is none at {place}" in done.stderr
    assert "pccl token new NAME" in done.stderr
    assert "--insecure" in done.stderr
    new(place, "alice")
    with serving(tmp_path, "--host", "0.0.0.0", **home) as master:
        assert master.line().startswith("pccl master listening on 0.0.0.0:")
        assert master.line() == f"admits only peers with a token (1 token in {place})\n"


def test_an_insecure_master_warns(keyring: Path, tmp_path: Path) -> None:
    new(keyring, "alice")
    with serving(tmp_path, "--host", "0.0.0.0", "--insecure") as master:
        assert master.line().startswith("pccl master listening on 0.0.0.0:")
        assert master.line() == "admits everybody, in plain text\n"
        master.terminate()
        assert master.wait() == 0
    log = (tmp_path / "master.log").read_text()
    assert "started with --insecure: everybody who can reach 0.0.0.0 may join" in log


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--keyring", "x", "--insecure"], "--keyring and --insecure exclude each other"),
        (["--keyring", ""], "--keyring is empty: give the path of a keyring"),
        (["--keyring"], "--keyring needs a value"),
        (["--insecure=1"], 'unknown argument "--insecure"'),
        (["--shares", "128,127"], '--shares is "128,127", one number per rank'),
        (["--shares", "256,"], '--shares is "256,", one number per rank'),
        (["--shares", "-1,257"], '--shares is "-1,257", one number per rank'),
    ],
)
def test_wrong_options_of_a_master(words: list[str], says: str) -> None:
    done = pccl("master", "--port", "0", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_a_master_whose_keyring_is_missing(keyring: Path) -> None:
    done = pccl("master", "--port", "0", "--keyring", keyring)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"there is no keyring {keyring}: `pccl token new` makes one" in done.stderr


def test_a_master_whose_keyring_is_empty(keyring: Path, tmp_path: Path) -> None:
    new(keyring, "alice")
    for tokens in (1, 0):
        with serving(tmp_path, "--keyring", keyring) as master:
            assert master.line()
            master.terminate()
            assert master.wait() == 0
        said = (tmp_path / "master.log").read_text()
        warning = f"warning: the keyring {keyring} has no token, so nobody can join"
        assert (warning in said) == (tokens == 0), said
        revoke(keyring, "alice")


def test_a_running_master_is_told(keyring: Path, tmp_path: Path) -> None:
    new(keyring, "alice"), new(keyring, "alice"), new(keyring, "bob")
    journal = tmp_path / "journal"
    with serving(tmp_path, "--keyring", keyring) as master:
        assert master.line()
        done = revoke(keyring, "alice", journal)
        assert done.returncode == 0, done.stderr
        said = "the master has read its keyring again: 2 tokens revoked, 0 peers removed"
        assert done.stdout.splitlines()[2] == said
        other = tmp_path / "other"
        written(other, *keyring.read_text().splitlines())
        done = revoke(other, "bob", journal)
        assert done.returncode == 1
        assert "the keyring is changed, but the master is not: the keyring of this " in done.stderr
        assert f"this master, {keyring}, still has the token" in done.stderr
        assert revoke(keyring, "bob", journal).stdout.count("1 token revoked") == 1


def test_a_running_master_without_a_keyring(keyring: Path, tmp_path: Path) -> None:
    token = new(keyring, "alice")
    with serving(tmp_path) as master:
        assert master.line()
        done = revoke(keyring, "alice", tmp_path / "journal")
    assert (done.returncode, done.stdout) == (1, f"revoked token {token.id} of alice\n")
    assert "but the master is not: this master was started without --keyring" in done.stderr


@pytest.mark.parametrize("said", [b"{}\n", b'{"revoked":1}\n', b'{"revoked":{"tokens":1}}\n'])
def test_an_answer_that_is_none(keyring: Path, play: Play, said: bytes) -> None:
    new(keyring, "alice")
    done = revoke(keyring, "alice", play(said))
    assert done.returncode == 1
    assert "says nothing about tokens: is it of another version?" in done.stderr
    assert "Traceback" not in done.stderr
