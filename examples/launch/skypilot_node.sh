#!/usr/bin/env bash
# Runs one node of skypilot.yaml: a peer, and on the head node the master beside it.
#   skypilot_node.sh torchrun --standalone --max-restarts=3 train.py
# RUN is the name of the run, with parameters if there are any: my-run?min_peers=2. RUN_TOKEN and RUN_KEYRING (the
# keyring in base64) are secrets. The keyring goes to a file on the head, and is dropped elsewhere.
set -euo pipefail
launch=$(dirname "$0")
# shellcheck source=examples/launch/common.sh
. "$launch/common.sh"
[ $# -gt 0 ] || fail "usage: skypilot_node.sh COMMAND..., such as: skypilot_node.sh torchrun --standalone train.py"
for name in SKYPILOT_NODE_IPS SKYPILOT_NODE_RANK; do
  need "$name" "SkyPilot sets it: start this script from the run section of skypilot.yaml"
done
need RUN "set it to the name of the run, in the envs section of skypilot.yaml"
# shellcheck disable=SC2016  # the user's shell expands it
need RUN_TOKEN 'run `export RUN_TOKEN="$(cat alice.token)"`, and launch with --secret RUN_TOKEN'
# shellcheck disable=SC2016
need RUN_KEYRING 'run `export RUN_KEYRING="$(base64 -w 0 keyring)"`, and launch with --secret RUN_KEYRING'

head=${SKYPILOT_NODE_IPS%%[[:space:]]*}  # one address a line, the head first
export PCCL_MASTER="pccl://$head:48148/$RUN"
keyring=$RUN_KEYRING
unset RUN_KEYRING
[ "$SKYPILOT_NODE_RANK" = 0 ] || exec "$launch/peer.sh" "$@"

state=$HOME/.local/state/pccl
mkdir -p "$state"
(umask 077; base64 -d <<< "$keyring" > "$state/keyring") 2> /dev/null ||
  fail "RUN_KEYRING is not base64: \`base64 -w 0 keyring\` prints its value"
env -u RUN_TOKEN pccl master --host 0.0.0.0 --keyring "$state/keyring" --journal "$state/master.journal" &
master=$!
trap 'kill "$master" ${peer:+"$peer"} 2> /dev/null || true' EXIT
trap 'exit 143' TERM INT

"$launch/peer.sh" "$@" &
peer=$!
status=0
wait -n -p ended "$master" "$peer" || status=$?
[ "$ended" = "$peer" ] || { say "the master ended with status $status: ends the peer"; exit 1; }
peer=
# The master settles the last operations of the other peers. It stays until they are gone, for 5 minutes at most.
until=$((SECONDS + 300))
while [ "$SECONDS" -lt "$until" ] && runs=$(pccl runs --json --journal "$state/master.journal") &&
  [[ $runs =~ \"peers\":\ *[1-9] ]]; do
  sleep 1
done
exit "$status"
