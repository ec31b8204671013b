#!/usr/bin/env bash
# Builds the libraries that a wheel brings, libuv and OpenSSL 3, from Debian's source packages: static, position
# independent, with hidden symbols. The prefix also gets their licences, and versions.json for the SBOM.
#   packaging/bundled.sh PREFIX [HOST]     HOST: such as aarch64-linux-gnu, to build for another processor
set -euo pipefail
keys=/usr/share/keyrings/debian-archive-keyring.gpg
prefix=$(realpath -m "$1")
host=${2:-}
[ ! -f "$prefix/versions.json" ] || exit 0
work="$prefix.build"
rm -rf "$work" "$prefix"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$prefix/licenses"

# The machine's own archives, with their source packages, and with lists in a folder of their own.
apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Component: main' |
  LC_ALL=C sort -ru |  # the archive itself comes before that of its security updates, which may lack sources
  while read -r uri suite; do echo "deb-src [signed-by=$keys] $uri $suite main"; done > "$work/debian.list"
apt=(apt-get -qq -o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$work" -o "Dir::State::Lists=$work/lists"
  -o "Dir::Cache=$work/cache" -o "APT::Sandbox::User=root")
"${apt[@]}" update
cd "$work"
# The newest version. An archive may list one whose files are not there yet; then it is the one before.
fetch() {
  local version
  for version in $(apt-cache "${apt[@]:2}" showsrc "$1" | awk '$1 == "Version:" { print $2 }' | sort -rVu); do
    "${apt[@]}" source "$1=$version" > source.log 2>&1 && return
    echo "$1 $version is not in the archive; trying the version before" >&2
  done
  cat source.log >&2
  return 1
}
fetch libuv1
fetch openssl

version_of() { dpkg-parsechangelog -l "$1/debian/changelog" -S Version; }
uv=$(echo "$work"/libuv1-*/) ssl=$(echo "$work"/openssl-*/)
jobs=${MAX_JOBS:-$(nproc)}

options=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_C_VISIBILITY_PRESET=hidden
  -DLIBUV_BUILD_TESTS=OFF)
[ -z "$host" ] || options+=(-DCMAKE_SYSTEM_NAME=Linux "-DCMAKE_SYSTEM_PROCESSOR=${host%%-*}" "-DCMAKE_C_COMPILER=$host-gcc")
cmake -S "$uv" -B "$work/libuv" "${options[@]}" > libuv.log
cmake --build "$work/libuv" -j"$jobs" --target uv_a >> libuv.log 2>&1 || { cat libuv.log >&2; exit 1; }
install -D -m 644 "$work/libuv/libuv_a.a" "$prefix/lib/libuv_a.a"
mkdir -p "$prefix/include"
cp -r "$uv/include/." "$prefix/include"

target=linux-x86_64 compiler=()
[ -z "$host" ] || { target="linux-${host%%-*}"; compiler=("--cross-compile-prefix=$host-"); }
cd "$ssl"
# The library contains these folders as constants. So they are not the folders of this build.
./Configure "$target" "${compiler[@]}" --prefix=/usr --libdir=lib --openssldir=/etc/ssl no-shared no-tests no-module no-dso \
  no-engine no-legacy -fPIC -fvisibility=hidden > "$work/openssl.log"
make -s -j"$jobs" DESTDIR="$work/installed" build_libs install_dev >> "$work/openssl.log" 2>&1 ||
  { tail -n 50 "$work/openssl.log" >&2; exit 1; }
cp -r "$work"/installed/usr/{lib,include} "$prefix"

cp "$uv/LICENSE" "$prefix/licenses/LICENSE-libuv.txt"
cp "$ssl/LICENSE.txt" "$prefix/licenses/LICENSE-openssl.txt"
printf '{"libuv": "%s", "openssl": "%s"}\n' "$(version_of "$uv")" "$(version_of "$ssl")" > "$prefix/versions.json"
rm -rf "$work"
