#!/usr/bin/env bash
# Runs one peer: finds its token, waits for the master, and becomes the command.
#   peer.sh torchrun --standalone --max-restarts=3 train.py
# The variables:
#   PCCL_MASTER        the URL of the run. Under torchrun, init_process_group("pccl") reads it. Another program reads it
#                      itself: init_method=os.environ["PCCL_MASTER"]
#   PCCL_SECRET_FILE   the file with the token, which only this user can read, or instead of it
#   RUN_TOKEN_FILE     a file with the token that others can read, such as a mounted secret, or
#   RUN_TOKEN          the token, where secrets are variables. The command does not get this variable
#   MASTER_WAIT_S      how long to wait for the master, in seconds (default 300)
set -euo pipefail
# shellcheck source=examples/launch/common.sh
. "$(dirname "$0")/common.sh"

[ $# -gt 0 ] || fail "usage: peer.sh COMMAND..., such as: peer.sh torchrun --standalone train.py"
need PCCL_MASTER "set it to the URL of the run, such as pccl://203.0.113.7:48148/my-run"
refuse_tokens "$@"
! has_token "$PCCL_MASTER" || fail "PCCL_MASTER contains a token: put it into a file, which PCCL_SECRET_FILE names"
read_url "$PCCL_MASTER"
wait_s=${MASTER_WAIT_S:-300}
[[ $wait_s =~ ^[0-9]{1,5}$ ]] || fail "MASTER_WAIT_S=$wait_s: expected whole seconds, such as 300"
take_token

# A peer looks for its master for 10 seconds only, and the machine of the master may start later than this one.
host=${master_host#[}
# shellcheck disable=SC2016  # the inner bash expands it
until timeout 5 bash -c ': < "/dev/tcp/$0/$1"' "${host%]}" "$master_port" 2> /dev/null; do
  [ "$SECONDS" -lt "$wait_s" ] || {
    say "no master answers at $master_host:$master_port after $wait_s s:" \
      "does \`pccl master\` run there, and is the port open?"
    exit 1
  }
  sleep 1
done
say "joins $PCCL_MASTER"
exec "$@"
