"""Stand-ins for the programs that the start scripts of examples/launch call, and a folder for them.

The stand-ins are small programs on PATH: ssh, srun, scontrol, sbatch, sky, kubectl, pccl and the
program of the training. Each writes its arguments to a file, so that a test can look for a token
there.

    place = Place(tmp_path)
    done = place.run("launch/peer.sh", "train", "ok", PCCL_MASTER=url)   # checks for the secret
    assert place.environment()["PCCL_MASTER"] == url                     # of the program
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from programs import Program

LAUNCH = Path(__file__).parents[2] / "examples" / "launch"
SECRET = "Zm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9vYmFyZm9"
TOKEN = f"pccl1.k3v9x2mq7a1p.{SECRET}"
RUN_S = 60.0
END_S = 15.0  # a program on a host notices the end of its input
NOT_OURS = re.compile(r"(PCCL|RUN|RUNPOD|VAST|SLURM|SKYPILOT|MASTER)_|(PUBLIC_IPADDR|RUN|LAUNCH)$")

TRAIN = """#!/bin/bash
# train ok | fail STATUS | wait: writes its variables, and waits for SIGTERM.
trap 'touch "$OUT/ended.${PCCL_NAME:-peer}"; echo leaves; exit 143' TERM
echo "train $*" >> "$OUT/arguments"
env > "$OUT/env.${PCCL_NAME:-peer}"
if [ -n "$PCCL_SECRET_FILE" ]; then
  stat -c %a "$PCCL_SECRET_FILE" > "$OUT/mode"
  cp "$PCCL_SECRET_FILE" "$OUT/token.${PCCL_NAME:-peer}"
fi
echo "trains"
case $1 in
  fail) exit "$2" ;;
  wait) for _ in $(seq 300); do sleep 0.1; done ;;
esac
"""
# Its last argument is a script for the shell of the host: POSIX, and in the home folder there.
SSH = """#!/bin/bash
echo "ssh $*" >> "$OUT/arguments"
while [ "$1" = -o ]; do shift 2; done
[ "$1" != unreachable ] || { echo "ssh: connect to host unreachable: refused" >&2; exit 255; }
cd "$OUT" && exec env -u PCCL_SECRET_FILE sh -c "$2"
"""
# It listens, as far as FAKE_ADDRESS is set. `runs` shows one peer at first.
PCCL = f"""#!{sys.executable}
import os, signal, socket, sys
out = os.environ["OUT"]
with open(f"{{out}}/arguments", "a") as file:
    print("pccl", *sys.argv[1:], file=file)
options = dict(zip(sys.argv, sys.argv[1:]))
if sys.argv[1] == "token":
    for option in ("--out", "--keyring"):
        if option in options:
            file = os.open(options[option], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.write(file, b"{TOKEN}\\n")
    sys.exit()
if sys.argv[1] == "runs":
    first = not os.path.exists(f"{{out}}/asked")
    open(f"{{out}}/asked", "w").close()
    print('{{"runs":[{{"run":"my-run","peers":%d}}]}}' % first)
    sys.exit()
if os.environ.get("MASTER_FAILS"):
    sys.exit("pccl master: the port is taken")
signal.signal(signal.SIGTERM, lambda *_: (open(f"{{out}}/ended.master", "w"), sys.exit(0)))
if address := os.environ.get("FAKE_ADDRESS"):
    server = socket.create_server((address, 48148))
print("pccl master listening on 0.0.0.0:48148", flush=True)
signal.sigtimedwait([], 30)
"""
SRUN = """#!/bin/bash
echo "srun $*" >> "$OUT/arguments"
while [[ $1 == -* ]]; do shift; done
"$@" & step=$!
trap 'kill -TERM "$step"' TERM
wait "$step" || wait "$step"
"""
SCONTROL = """#!/bin/sh
echo "scontrol $*" >> "$OUT/arguments"
"""
# It runs each task of the array from a copy of the script, one after another.
SBATCH = """#!/bin/bash
echo "sbatch $*" >> "$OUT/arguments"
while [[ $1 == -* ]]; do
  case $1 in --array=*) tasks=${1#*=};; esac
  shift
done
mkdir -p "$OUT/spool" && cp "$1" "$OUT/spool/slurm_script" && shift
export SLURM_SUBMIT_DIR=$PWD SLURM_ARRAY_JOB_ID=70
for task in $(seq "${tasks%-*}" "${tasks#*-}"); do
  SLURM_JOB_ID=$((70 + task)) SLURM_ARRAY_TASK_ID=$task "$OUT/spool/slurm_script" "$@" || exit
done
"""
# Both fail if a file or a secret that the command names does not exist.
SKY = """#!/bin/bash
echo "sky $*" >> "$OUT/arguments"
shift
while [ "$1" = --secret ]; do [ -n "${!2}" ] || exit 3; shift 2; done
[ -f "$1" ]
"""
KUBECTL = """#!/bin/bash
echo "kubectl $*" >> "$OUT/arguments"
while [ $# -gt 0 ]; do
  case $1 in
    --from-file=*) [ -f "${1#*=}" ] || exit 3;;
    -f) [ -f "$2" ] || exit 3;;
  esac
  shift
done
"""


class Place:
    """A folder of a user, with `launch`, a token and the stand-ins.

    Attributes:
        path: the folder. The stand-ins write into it, too.
        variables: the environment of what runs here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "bin").mkdir()
        (path / "launch").symlink_to(LAUNCH)
        for name, text in {
            "train": TRAIN,
            "torchrun": TRAIN,
            "ssh": SSH,
            "pccl": PCCL,
            "srun": SRUN,
            "scontrol": SCONTROL,
            "sbatch": SBATCH,
            "sky": SKY,
            "kubectl": KUBECTL,
        }.items():
            program = path / "bin" / name
            program.write_text(text)
            program.chmod(0o755)
        self.token = path / "alice.token"
        self.token.write_text(f"{TOKEN}\n")
        self.token.chmod(0o600)
        kept = {name: value for name, value in os.environ.items() if not NOT_OURS.match(name)}
        own = {"OUT": str(path), "HOME": str(path), "TMPDIR": str(path)}
        self.variables = {**kept, **own, "PATH": f"{path}/bin:{os.environ['PATH']}"}

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; no output and no argument may have the secret."""
        done = subprocess.run(
            command,
            cwd=self.path,
            env={**self.variables, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_S,
        )
        assert SECRET not in done.stdout + done.stderr + self.arguments()
        return done

    def start(self, *command: str, **variables: str) -> Program:
        """Start a command in a process group of its own, as a terminal does."""
        return Program(
            command,
            heeds_signals=True,
            cwd=self.path,
            env={**self.variables, **variables},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def arguments(self) -> str:
        """Return the arguments of all stand-ins so far."""
        file = self.path / "arguments"
        return file.read_text() if file.exists() else ""

    def environment(self, peer: str = "peer") -> dict[str, str]:
        """Return the variables that a training program got."""
        lines = (self.path / f"env.{peer}").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def await_end_of(self, *names: str) -> None:
        """Wait until these programs have noticed that they are to end."""
        until = time.monotonic() + END_S
        missing = list(names)
        while missing:
            missing = [name for name in missing if not (self.path / f"ended.{name}").exists()]
            assert time.monotonic() < until, f"still there: {missing}"
            time.sleep(0.02)  # nothing announces a new file; `until` bounds the loop
