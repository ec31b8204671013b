# The functions that the start scripts share. A script sources this file; bash 5.1 or later.
# shellcheck shell=bash
program=${program:-${0##*/}}

say() { echo "$program: $*" >&2; }
# fail TEXT: ends the script with exit code 2. The user has to change something; a new start does not help.
fail() { say "$*"; exit 2; }
# need NAME REMEDY: the variable must be set.
need() { [ -n "${!1:-}" ] || fail "$1 is not set: $2"; }

has_token() { [[ $1 =~ pccl[0-9]+\.[a-z0-9]{8,16}\.[A-Za-z0-9_-]{20} ]]; }
# refuse_tokens ARGUMENT...: others on this machine can see arguments.
refuse_tokens() {
  local number=0 word
  for word in "$@"; do
    number=$((number + 1))
    ! has_token "$word" || fail "argument $number contains a token, which others on this machine can see." \
      "Revoke it (\`pccl token revoke ID\`), and put a new one into a file"
  done
}

# private_file PATH: it must be a file that only its owner can read.
private_file() {
  [ -f "$1" ] && [ -r "$1" ] ||
    fail "$1 is no file that this user can read: \`pccl token new NAME --out FILE\` makes one"
  local mode
  mode=$(stat -L -c %a "$1")
  [[ $mode == *00 ]] || fail "$1 is open to others (mode $mode): run \`chmod 600 $1\`"
}

# read_url URL: sets master_host and master_port. An IPv6 address stands in brackets.
# shellcheck disable=SC2034  # for the script that sources this file
read_url() {
  [[ $1 =~ ^pccl://(\[[0-9A-Fa-f:.]+\]|[^][/:?@]+)(:([0-9]+))?([/?].*)?$ ]] ||
    fail "$1 is no URL of a run: expected pccl://HOST:PORT/RUN, such as pccl://203.0.113.7:48148/my-run"
  master_host=${BASH_REMATCH[1]}
  master_port=${BASH_REMATCH[3]:-48148}
}

# take_token: sets PCCL_SECRET_FILE. A token in RUN_TOKEN or RUN_TOKEN_FILE goes into a file of this user alone,
# because pccl refuses a file that others can read. The programs that start later do not get RUN_TOKEN.
take_token() {
  local name token given=()
  for name in PCCL_SECRET_FILE RUN_TOKEN_FILE RUN_TOKEN PCCL_INSECURE; do
    [ -z "${!name:-}" ] || given+=("$name")
  done
  [ ${#given[@]} -gt 0 ] || fail "no token: set PCCL_SECRET_FILE to the file with the token of this peer" \
    "(RUN_TOKEN_FILE if others can read the file, RUN_TOKEN to the token itself if this platform passes secrets so)"
  [ ${#given[@]} -eq 1 ] || fail "${given[*]} are all set, and they exclude each other: leave one"
  token=${RUN_TOKEN:-}
  unset RUN_TOKEN
  case ${given[0]} in
    PCCL_SECRET_FILE) private_file "$PCCL_SECRET_FILE"; return ;;
    PCCL_INSECURE) return ;;
    RUN_TOKEN_FILE)
      [ -r "$RUN_TOKEN_FILE" ] || fail "RUN_TOKEN_FILE=$RUN_TOKEN_FILE cannot be read: is the secret mounted there?"
      token=$(< "$RUN_TOKEN_FILE") ;;
  esac
  PCCL_SECRET_FILE=$(mktemp)                        # mode 600
  printf '%s\n' "$token" > "$PCCL_SECRET_FILE"      # a builtin: no argument of a process
  export PCCL_SECRET_FILE
}

# end_within SECONDS PID...: waits for child processes that were asked to end. It kills those that still run then.
end_within() {
  local until=$((SECONDS + $1))
  shift
  while kill -0 "$@" 2> /dev/null; do  # as long as one of them runs
    [ "$SECONDS" -lt "$until" ] || { kill -KILL "$@" 2> /dev/null || true; break; }
    sleep 0.1
  done
}
