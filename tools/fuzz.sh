#!/usr/bin/env bash
# Runs each target that lies in FOLDER for SECONDS, JOBS at a time, from its corpus in tests/fuzz/corpus and from what
# earlier runs have found (FOLDER/corpus). Ends with an error if one has found something, and says how to see it again.
#   tools/fuzz.sh FOLDER SECONDS JOBS [TARGET...]
set -euo pipefail
folder=$1 seconds=$2 jobs=$3
shift 3
cd "$(dirname "$0")/.."
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
  for program in "$folder"/fuzz_*; do targets+=("${program##*/fuzz_}"); done
fi

run() {
  local folder=$1 seconds=$2 target=$3
  local found=$folder/corpus/$target crashes=$folder/crashes
  mkdir -p "$found" "$crashes" "tests/fuzz/corpus/$target"
  # A core is told events of 16 bytes each: its inputs are long from the start, and no input is worth more than others.
  local how="-max_len=4096"
  case $target in engine | master | peer) how="-max_len=2048 -len_control=0 -entropic=0" ;; esac
  # shellcheck disable=SC2086
  if "$folder/fuzz_$target" "$found" "tests/fuzz/corpus/$target" -max_total_time="$seconds" -timeout=10 $how \
    -rss_limit_mb=2048 -detect_leaks=0 -artifact_prefix="$crashes/$target-" > "$folder/$target.log" 2>&1; then
    echo "$target: $(grep -E "^Done|^#[0-9]+.*DONE" "$folder/$target.log" | tail -1)"
  else
    tail -n 40 "$folder/$target.log"
    echo "$target has found something. Again: $folder/fuzz_$target $(ls -t "$crashes/$target-"* | head -1)"
    return 1
  fi
}
export -f run
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'run "$@"' run "$folder" "$seconds" {}
