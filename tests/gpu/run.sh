#!/usr/bin/env bash
# Runs the GPU checks on a machine with a GPU, from the root of the repository:
#   tests/gpu/run.sh [step...]
# It needs build/gpu-bundle (make gpu-bundle) and a python3 with torch. README.md, beside this file, says more.
set -euo pipefail
cd "$(dirname "$0")/../.."
bundle=build/gpu-bundle
[ -d "$bundle" ] || { echo "There is no $bundle: run make gpu-bundle, or bring the folder" >&2; exit 2; }
libraries=$PWD/$bundle/lib
# A system without this OpenSSL gets ours. Otherwise the system's comes first, since Python uses it too.
python3 -c 'import ctypes; ctypes.CDLL("libssl.so.3")' 2>/dev/null || libraries+=:$PWD/$bundle/lib-openssl
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PYTHONPATH=$PWD/$bundle${PYTHONPATH:+:$PYTHONPATH}
export PYTHONUNBUFFERED=1
exec python3 tests/gpu/run.py "$@"
