#!/usr/bin/env bash
# Packs what tests/gpu needs on a machine with a GPU into build/gpu-bundle: the package, built for a Python and its torch,
# the CUDA kernels, and the libraries that such a machine may lack. The build has run before.
#   tools/gpu-bundle.sh PYTHON
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
bundle=build/gpu-bundle
package=$bundle/pccl_backend
rm -rf "$bundle"
mkdir -p "$bundle/lib" "$bundle/lib-openssl"

"$python" setup.py --quiet build_ext --build-lib "$bundle"
git ls-files pccl_backend | tar -c -T - | tar -x -C "$bundle"
[ -f "$package/libpccl_cuda.so" ] || { echo "There is no libpccl_cuda.so: run make cuda" >&2; exit 1; }
cp build/core/libpccl_host_hash.so "$bundle/lib"
# The system's libraries, by the path that the module uses here. OpenSSL stands apart: run.sh takes it only if needed.
module=$(echo "$package"/_C_torch_*.so)
library() { ldd "$module" | awk -v name="$1" '$1 == name { print $3 }'; }
cp -L "$(library libuv.so.1)" "$bundle/lib"
cp -L "$(library libssl.so.3)" "$(library libcrypto.so.3)" "$bundle/lib-openssl"
strip --strip-unneeded "$bundle/lib/libpccl_host_hash.so"
du -sh "$bundle"
