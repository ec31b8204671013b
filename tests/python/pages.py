"""What a reader of each page has when a block begins: names in Python, and files in a shell.

PYTHON has a program for each page, which runs before every block of Python on the page. SHELL has a
script for each page, which runs before its first block of the shell. It replaces commands that
would change the machine by functions of the same names. CHANGES are the texts in blocks that are
replaced, such as places of the system by places in `$ROOT`, the folder of the test.
"""

from __future__ import annotations

import sys
from pathlib import Path

_MODEL = """
import itertools
import torch
import torch.distributed as dist
import pccl_backend as pccl

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
data = list(torch.randn(12, 16, 4))
batches = itertools.cycle(data)

def loss(model, batch):
    return model(batch).square().mean()
"""

# The pages whose blocks begin in a group. The trainers of the others join a run by themselves.
IN_A_GROUP = ("docs/errors.md", "docs/quantization.md", "docs/rarely-used.md", "docs/running.md")
IN_A_GROUP += ("docs/deadlocks.md", "docs/watching.md")

PYTHON = {
    "docs/deadlocks.md": _MODEL
    + """
first, second = ("a", "b") if dist.get_rank() == 0 else ("b", "a")
tensors, metrics = {tag: torch.ones(1000) for tag in ("a", "b")}, torch.ones(3)
""",
    "docs/diloco.md": _MODEL,
    "docs/errors.md": _MODEL + "loss = loss(model, data[0])\n",
    "docs/quantization.md": _MODEL
    + """
from pccl_backend.quantization import MinMax
from pccl_backend.trainers import DiLoCo

delta, gradient = torch.randn(2, 1 << 15)
ddp = torch.nn.parallel.DistributedDataParallel(model)
url = "pccl://host:48148/my-run"
""",
    "docs/rarely-used.md": _MODEL
    + """
delta, newcomer = torch.randn(1 << 15), False
loss(model, data[0]).backward()
optimizer.step()
""",
    "docs/recipes.md": _MODEL
    + """
from pccl_backend.trainers import DDP, DiLoCo

scaler = torch.amp.GradScaler("cpu")
""",
    "docs/running.md": _MODEL,
    "docs/watching.md": _MODEL
    + """
class Writer:  # as torch's SummaryWriter
    def add_scalar(self, name, value, step):
        print(name, value, step)

writer = Writer()
""",
}

# `pccl master` is a program for a terminal of its own: here it runs in the background.
_SHELL = """
ip link set lo up
export HOME="$ROOT/home"
pccl() {
  if [ "$1" != master ]; then command pccl "$@"; return; fi
  command pccl "$@" > "$ROOT/master.log" 2>&1 & master=$!
  for _ in $(seq 600); do
    ! (: < /dev/tcp/127.0.0.1/48148) 2> /dev/null || return 0
    kill -0 "$master" || break
    sleep 0.05
  done
  echo "the master does not listen:" >&2
  cat "$ROOT/master.log" >&2
  exit 1
}
"""
_NIGHT = """
cat > "$ROOT/night.py" <<'END'
import sys, torch, torch.distributed as dist
import pccl_backend as pccl
dist.init_process_group("pccl", init_method="pccl://127.0.0.1:48148/night")
pccl.sync_shared_state(pccl.SharedState({"weight": torch.zeros(4)}, revision=0))
print("synced", flush=True)
sys.stdin.read()
dist.destroy_process_group()
END
"""

SHELL = {
    "README.md": _SHELL + 'cd "$ROOT"\n',
    "docs/ddp.md": _SHELL
    + """
pccl master
torchrun() {  # three terminals
  local terminals= terminal
  for terminal in 1 2 3; do command torchrun "$@" & terminals+=" $!"; done
  for terminal in $terminals; do wait "$terminal"; done
}
""",
    "docs/operating.md": _SHELL
    + _NIGHT
    + """
mkdir -p "$ROOT/opt/pccl/bin" "$ROOT/var/lib/pccl" "$ROOT/var/backups" "$ROOT/etc/systemd/system"
cp "$ROOT/bin/pccl" "$ROOT/opt/pccl/bin"
touch "$HOME/alice.token"
useradd() { :; }
runuser() { shift 3; "$@"; }                     # -u USER --
install() { cp "${@: -2}"; }                     # without the owner
journalctl() { cat "$ROOT/master.log"; }
timeout() { command timeout --preserve-status "$@"; }
state="$ROOT/var/lib/pccl"
systemctl() {  # the service begins without tokens, and a run "night" is over
  case " $* " in *" stop "* | *" restart "*) kill "$master"; wait "$master";; esac
  case " $* " in *" start "* | *" restart "* | *" --now "*)
    if [ -e "$state/keyring" ]; then set -- --keyring "$state/keyring"; else set --; fi
    pccl master --journal "$state/master.journal" "$@"
    if [ ! -e "$ROOT/night" ]; then python "$ROOT/night.py" < /dev/null > "$ROOT/night"; fi;;
  esac
}
""",
    "docs/watching.md": _SHELL
    + _NIGHT
    + """
ssh() { shift; "$@"; }                           # HOST
pccl master
coproc PEER { python "$ROOT/night.py"; }
read -r -t 90 -u "${PEER[0]}" || { echo "the peer has not synced within 90 s" >&2; exit 1; }
""",
}

CHANGES = {
    "docs/watching.md": {"pccl://host:48148": "pccl://127.0.0.1:48148"},
    "README.md": {"time.sleep(1)": "pass"},
    "docs/operating.md": {
        "/opt/pccl": "$ROOT/opt/pccl",
        "/var/lib/pccl": "$ROOT/var/lib/pccl",
        "/var/backups": "$ROOT/var/backups",
        "/etc/systemd/system": "$ROOT/etc/systemd/system",
        "/tmp/look.journal": "$ROOT/look.journal",
        "revoke k3v9x2mq7a1p": 'revoke "$(cut -d . -f 2 "$state/alice.token")"',
    },
    "docs/recipes.md": {"outer.revision < 500": "outer.revision < 2"},
}


def changed(page: str, program: str) -> str:
    """Return the program of a block with the changes of its page."""
    for old, new in CHANGES.get(page, {}).items():
        program = program.replace(old, new)
    return program


def make_commands(folder: Path) -> Path:
    """Write the commands that an installation has; return their folder, for PATH."""
    commands = folder / "bin"
    commands.mkdir()
    for name, module in (("pccl", "pccl_backend.cli"), ("torchrun", "torch.distributed.run")):
        command = commands / name
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        command.chmod(0o755)
    python = commands / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return commands
