#!/usr/bin/env bash
# Makes a folder with a libstdc++ for the linker: the one of Debian 11, and from GCC's static library only what that one
# lacks. A program that is linked with it (-L FOLDER) runs wherever the libstdc++ of Debian 11 or a later one is.
#   packaging/floor.sh FOLDER [HOST]       HOST: such as aarch64-linux-gnu
set -euo pipefail
keys=/usr/share/keyrings/debian-archive-keyring.gpg
folder=$(realpath -m "$1")
host=${2:-$(dpkg-architecture -q DEB_HOST_MULTIARCH)}
case $host in
  x86_64-linux-gnu) architecture=amd64 ;;
  aarch64-linux-gnu) architecture=arm64 ;;
  *) echo "no libstdc++ of Debian 11 is known for $host" >&2; exit 2 ;;
esac
[ ! -f "$folder/libstdc++.so" ] || exit 0
work="$folder.build"
rm -rf "$work" "$folder"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$folder"
# From the archive that this machine uses.
read -r uri < <(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' \
  'Component: main' | sort -u)
echo "deb [arch=$architecture signed-by=$keys] $uri bullseye main" > "$work/debian.list"
apt=(apt-get -qq -o "Dir::Etc::SourceList=/dev/null" -o "Dir::Etc::SourceParts=$work" -o "Dir::State::Lists=$work/lists"
  -o "Dir::State::Status=/dev/null" -o "Dir::Cache=$work/cache" -o "APT::Sandbox::User=root"
  -o "APT::Architecture=$architecture")
"${apt[@]}" update
cd "$work"
"${apt[@]}" download libstdc++6
dpkg-deb -x libstdc++6_*.deb root
cp -L "root/usr/lib/$host/libstdc++.so.6" "$folder/libstdc++.so.6"
compiler=g++
[ "$architecture" = "$(dpkg --print-architecture)" ] || compiler="$host-g++"
archive=$("$compiler" -print-file-name=libstdc++.a)
echo "INPUT($folder/libstdc++.so.6 $archive)" > "$folder/libstdc++.so"
rm -rf "$work"
