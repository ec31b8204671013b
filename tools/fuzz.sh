#!/usr/bin/env bash
# Runs each target in FOLDER for SECONDS, JOBS at a time. A target starts from its corpus in tests/fuzz/corpus and from
# the inputs that earlier runs have added (FOLDER/corpus). If a target finds a bug, the script ends with an error and
# prints how to reproduce it.
#   tools/fuzz.sh FOLDER SECONDS JOBS [TARGET...]
# The following command copies the new inputs of a run into the tree:
#   FOLDER/fuzz_TARGET -set_cover_merge=1 tests/fuzz/corpus/TARGET FOLDER/corpus/TARGET
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
  # The input of a core is a sequence of events of 16 bytes, and short sequences reach nothing. Entropic scheduling took
  # a third of the time of such a target.
  local how=(-max_len=4096)
  case $target in engine | master | peer) how=(-max_len=2048 -len_control=0 -entropic=0) ;; esac
  if "$folder/fuzz_$target" "$found" "tests/fuzz/corpus/$target" -max_total_time="$seconds" -timeout=10 "${how[@]}" \
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
