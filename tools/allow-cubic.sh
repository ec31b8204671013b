#!/usr/bin/env bash
# Lets the network namespaces of this machine choose cubic until the standard input closes, if the administrator does
# not permit cubic already. Prints "ready" when they can choose it. If several copies run at once, the first one changes
# the setting and the last one restores it, no matter how their users end. Without root it only prints "ready".
#   tools/allow-cubic.sh
set -euo pipefail
allowed=/proc/sys/net/ipv4/tcp_allowed_congestion_control
state=/run/pccl-allow-cubic  # holds the original setting while it is changed
if [[ " $(cat $allowed) " == *" cubic "* && ! -s $state ]] || [ ! -w $allowed ]; then
  echo ready
  exec cat >/dev/null
fi
trap '' INT TERM HUP  # it ends only when its input closes: the process that holds it may need more time
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
if flock -xn 9; then  # no other copy is left
  cat $state >$allowed
  : >$state
fi
