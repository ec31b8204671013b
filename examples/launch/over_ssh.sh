#!/usr/bin/env bash
# Runs one peer on each host by ssh, and a master too if asked. `over_ssh.sh --help` has the options.
# Each ssh has an input that stays open as long as this script lives. Its first line is the token. Its end ends the
# program on the host: after a failure, after Ctrl-C, and also if this script is killed or the connection breaks.
set -euo pipefail
# shellcheck source=examples/launch/common.sh
. "$(dirname "$0")/common.sh"

usage() {
  cat <<'END'
usage: over_ssh.sh --url URL --token FILE [--master here|HOST] [--pccl PATH] [--keep-going] HOST... -- COMMAND...

  --url URL       of the run, with an address of the master that all hosts can reach
  --token FILE    the token of the peers; each host gets it for the time of the run
  --master here   start the master on this machine, or on a HOST; without this option it runs already
  --pccl PATH     the program pccl on the machine of the master (default pccl)
  --keep-going    if a peer fails, the others go on; the exit code is still 1
  COMMAND         runs in the home folder of each host, with PCCL_MASTER, PCCL_SECRET_FILE and PCCL_NAME

Each host must let this user in without a password, and its login shell must be a POSIX shell.
END
}

url='' token='' master='' pccl=pccl keep_going='' hosts=()
refuse_tokens "$@"
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --help) usage; exit 0 ;;
    --keep-going) keep_going=yes ;;
    --url | --token | --master | --pccl)
      [ $# -gt 1 ] || fail "$1 needs a value; \`over_ssh.sh --help\` shows it"
      printf -v "${1#--}" %s "$2"
      shift ;;
    -*) fail "$1 is no option; \`over_ssh.sh --help\` has all of them" ;;
    *) hosts+=("$1") ;;
  esac
  shift
done
[ ${#hosts[@]} -gt 0 ] && [ $# -gt 1 ] && [ -n "$url" ] && [ -n "$token" ] ||
  fail "needed are --url, --token, at least one HOST, and -- COMMAND...; \`over_ssh.sh --help\` shows them"
shift
read_url "$url"
private_file "$token"
command -v ssh > /dev/null || fail "there is no ssh on this machine: install an OpenSSH client"

# The program on a host. `wait` returns when the command ends; the other process ends it when the input does.
on_host=$(cat <<'END'
IFS= read -r token
file=
if [ -n "$token" ]; then
  file=$(mktemp) || exit 1
  printf '%s\n' "$token" > "$file"
  PCCL_SECRET_FILE=$file
  export PCCL_SECRET_FILE
fi
exec 3<&0
"$@" < /dev/null 3<&- &
child=$!
{ cat <&3; kill "$child"; for _ in 1 2 3 4 5 6 7 8 9 10; do sleep 1; done; kill -9 "$child"; } > /dev/null 2>&1 &
watcher=$!
status=0
wait "$child" || status=$?
kill "$watcher"
[ -z "$file" ] || rm -f "$file"
exit "$status"
END
)

folder=$(mktemp -d)
mkfifo "$folder/life" "$folder/master"
exec 3<> "$folder/life"  # the only open end: each ssh closes its copy
declare -A names=()      # of the processes that run here, by pid
finish() {
  trap - INT TERM HUP
  exec 3>&-
  [ -z "${master_here:-}" ] || kill "$master_here" 2> /dev/null || true
  [ ${#names[@]} -eq 0 ] || end_within 20 "${!names[@]}"
  rm -rf "$folder"
}
trap finish EXIT
trap 'say "interrupted: ends the peers"; exit 130' INT
trap 'say "ends the peers"; exit 143' TERM HUP

# on HOST FIRST-LINE SETTINGS COMMAND...: becomes an ssh that runs the command. SETTINGS is text for the shell there.
on() {
  local host=$1 first=$2 settings=$3
  shift 3
  exec 3>&-
  trap '' INT  # Ctrl-C is for the script, which ends the program on the host first
  exec ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=10 -o ServerAliveCountMax=3 "$host" \
    "$settings set -- ${*@Q}; $on_host" < <(cat "$first"; exec cat "$folder/life")
}
# labelled NAME: becomes a sed that copies the last lines, too: Ctrl-C reaches it, but does not end it.
labelled() { trap '' INT; exec sed -u "s|^|$1: |"; }

if [ -n "$master" ]; then
  everywhere=0.0.0.0
  [[ $master_host != \[* ]] || everywhere=::
  run_master=("$pccl" master --host "$everywhere" --port "$master_port")
  if [ "$master" = here ]; then
    command -v "$pccl" > /dev/null || fail "there is no $pccl on this machine: name it by --pccl"
    (trap '' INT; exec "${run_master[@]}" 3>&-) > "$folder/master" 2> >(exec 3>&-; labelled master >&2) &
    master_here=$!
  else
    echo > "$folder/empty"
    on "$master" "$folder/empty" "" "${run_master[@]}" > "$folder/master" 2> >(exec 3>&-; labelled master >&2) &
  fi
  names[$!]="the master"
  exec 4< "$folder/master"
  IFS= read -r -t 60 line <&4 && [[ $line == *"listening on"* ]] || {
    say "the master has not started within 60 s, or it ended: the lines above have the reason"
    exit 1
  }
  { echo "$line"; cat <&4; } 3>&- | labelled master 3>&- &
  exec 4<&-
fi

for host in "${hosts[@]}"; do
  name=${host#*@}
  on "$host" "$token" "export PCCL_MASTER=${url@Q} PCCL_NAME=${name@Q};" "$@" \
    > >(exec 3>&-; labelled "$host") 2> >(exec 3>&-; labelled "$host" >&2) &
  names[$!]="the peer on $host"
done

left=${#hosts[@]} failed=0
while [ "$left" -gt 0 ]; do
  status=0
  wait -n -p ended "${!names[@]}" || status=$?
  name=${names[$ended]}
  unset "names[$ended]"
  if [ "$name" = "the master" ]; then
    say "the master ended with status $status: ends the peers"
    exit 1
  fi
  left=$((left - 1))
  if [ "$status" -ne 0 ]; then
    say "$name ended with status $status$([ "$status" -ne 255 ] || echo " (255: ssh itself failed)")"
    failed=1
    [ -n "$keep_going" ] || { say "ends the others; with --keep-going they would go on"; exit 1; }
  fi
done
exit "$failed"
