#!/usr/bin/env bash
# Runs one peer in a container of Runpod or Vast, behind a router that forwards a port to it.
#   rented_host.sh 70000 torchrun --standalone --max-restarts=3 train.py
# The first argument is the inner port that the container was rented with. With 70000 or more, the provider chooses a
# port that has the same number inside and outside. The variables of peer.sh apply, too.
set -euo pipefail
launch=$(dirname "$0")
# shellcheck source=examples/launch/common.sh
. "$launch/common.sh"

[ $# -gt 1 ] || fail "usage: rented_host.sh PORT COMMAND..., such as: rented_host.sh 70000 torchrun --standalone a.py"
inner=$1
shift
[[ $inner =~ ^[1-9][0-9]{0,5}$ ]] && ((inner <= 65535 || inner >= 70000)) ||
  fail "the inner port is $inner: expected 1 to 65535, or 70000 and above for a port with one number inside and outside"
[ -z "${PCCL_ADVERTISE:-}${PCCL_PORT_RANGE:-}" ] ||
  fail "PCCL_ADVERTISE or PCCL_PORT_RANGE is set already: unset both, or start the peer with peer.sh"

if [ -n "${!RUNPOD_*}" ]; then
  provider=Runpod host_variable=RUNPOD_PUBLIC_IP port_variable=RUNPOD_TCP_PORT_$inner
  remedy="edit the pod, and add $inner to its exposed TCP ports"
elif [ -n "${!VAST_*}${PUBLIC_IPADDR:-}" ]; then
  provider=Vast host_variable=PUBLIC_IPADDR port_variable=VAST_TCP_PORT_$inner
  remedy="add \`-p $inner:$inner\` to the Docker options of the instance, and rent it again"
else
  fail "no variable begins with RUNPOD_ or VAST_, so this is neither Runpod nor Vast:" \
    "set PCCL_ADVERTISE by hand (docs/running.md, section 7), and start the peer with peer.sh"
fi

need "$host_variable" "this container has no public address: $remedy"
need "$port_variable" "no port is forwarded to $inner: $remedy"
host=${!host_variable} outer=${!port_variable}
[[ $host =~ ^[0-9A-Za-z:.-]+$ ]] ||
  fail "$host_variable=$host is no address: $provider should have set one address or name here; restart the container"
[[ $outer =~ ^[1-9][0-9]{0,4}$ ]] && ((outer <= 65535)) ||
  fail "$port_variable=$outer is no port from 1 to 65535: $remedy"
[[ $host != *:* ]] || host="[$host]"

export PCCL_ADVERTISE="$host:$outer"
listens=$outer
if ((inner <= 65535)); then
  listens=$inner
  export PCCL_PORT_RANGE="$inner-$inner"
fi
say "$provider: the other peers reach this one at $PCCL_ADVERTISE ($host_variable, $port_variable);" \
  "it listens on port $listens"
exec "$launch/peer.sh" "$@"
