#!/usr/bin/env bash
# Runs a command in its own network namespace (loopback only) with cubic, the congestion control of nearly every Linux
# host. Another setting of the machine can halve loopback throughput and distort every comparison.
#   tools/stock-network.sh COMMAND...
set -euo pipefail
namespace=(--net)
[ "$(id -u)" -eq 0 ] || namespace+=(--user --map-root-user)

# A namespace may choose only what the machine permits. The coprocess permits cubic while this shell lives.
coproc allow { exec "$(dirname "$0")/allow-cubic.sh"; }
read -r <&"${allow[0]}"
unshare "${namespace[@]}" bash -c '
  ip link set lo up
  now=/proc/sys/net/ipv4/tcp_congestion_control
  echo cubic 2>/dev/null >$now ||
    echo "Only root can choose cubic on this machine: measuring with $(cat $now)." >&2
  exec "$@"' stock-network "$@"
