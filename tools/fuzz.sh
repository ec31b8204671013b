#!/usr/bin/env bash
# Runs each target in FOLDER for SECONDS, JOBS at a time. A target starts from its archive in tests/fuzz/corpus and from
# the inputs that earlier runs have found (FOLDER/corpus). If a target finds a bug, the script ends with an error and
# prints how to reproduce it.
#   tools/fuzz.sh FOLDER SECONDS JOBS [TARGET...]
# The following command takes the new inputs of a run into the archives:
#   tools/fuzz_corpus.py merge FOLDER [TARGET...]
set -euo pipefail
folder=$1 seconds=$2 jobs=$3
shift 3
cd "$(dirname "$0")/.."
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
  for program in "$folder"/fuzz_*; do targets+=("${program##*/fuzz_}"); done
fi
corpus() { "${PYTHON:-python3}" tools/fuzz_corpus.py "$@"; }
rm -rf "$folder/seeds"  # an earlier archive may have had other inputs
corpus unpack "$folder/seeds"

run() {
  local folder=$1 seconds=$2 target=$3
  local seeds=$folder/seeds/$target found=$folder/corpus/$target crashes=$folder/crashes
  mkdir -p "$found" "$crashes"
  # The input of a core is a sequence of events of 16 bytes, and short sequences reach nothing. Entropic scheduling took
  # a third of the time of such a target.
  local how=(-max_len="$(corpus max-len "$target")")
  case $target in engine | master | peer) how+=(-len_control=0 -entropic=0) ;; esac
  if "$folder/fuzz_$target" "$found" "$seeds" -max_total_time="$seconds" -timeout=10 "${how[@]}" \
    -rss_limit_mb=2048 -detect_leaks=0 -artifact_prefix="$crashes/$target-" > "$folder/$target.log" 2>&1; then
    echo "$target: $(grep -E "^Done|^#[0-9]+.*DONE" "$folder/$target.log" | tail -1)"
  else
    tail -n 40 "$folder/$target.log"
    local crash
    crash=$(ls -t "$crashes/$target-"* | head -1)
    echo "$target has found something. Again: $folder/fuzz_$target $crash"
    echo "Keep the input, so that each later run tries it: make fuzz-add TARGET=$target FILE=$crash"
    return 1
  fi
}
export -f run corpus
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'run "$@"' run "$folder" "$seconds" {}
