#!/usr/bin/env bash
# Lets the network namespaces of this machine choose cubic, where its administrator allows less, until the input closes.
# Says "ready" when they can. Several at once share what the first has changed, and the last one changes it back,
# however those that use it end. Without root it only says so.
#   tools/allow-cubic.sh
set -euo pipefail
allowed=/proc/sys/net/ipv4/tcp_allowed_congestion_control
state=/run/pccl-allow-cubic  # what was allowed before, while somebody needs more
if [[ " $(cat $allowed) " == *" cubic "* && ! -s $state ]] || [ ! -w $allowed ]; then
  echo ready
  exec cat >/dev/null
fi
trap '' INT TERM HUP  # it ends with its input: whoever holds that may need a while
exec 8>"$state.turn" 9>>"$state"
flock 8
flock -s 9
if [[ " $(cat $allowed) " != *" cubic "* ]]; then
  cat $allowed >$state
  echo "$(cat $state) cubic" >$allowed
fi
flock -u 8
echo ready
cat >/dev/null 8>&- 9>&-
flock 8
flock -u 9
if flock -xn 9; then  # nobody else is left
  cat $state >$allowed
  : >$state
fi
