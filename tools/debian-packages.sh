#!/usr/bin/env bash
# Makes sure that the Debian packages of the named groups are installed. As root it installs missing packages.
# Otherwise it prints their names and how to install them. It takes a few milliseconds if nothing is missing.
#   tools/debian-packages.sh setup [clang] [netns]
set -euo pipefail
list="$(dirname "$0")/debian-packages.txt"

if ! command -v dpkg-query >/dev/null; then
  echo "Not a Debian system: packages are not checked. What is needed, by Debian's names: $list" >&2
  exit 0
fi
wanted=$(for group in "$@"; do awk -v group="$group" '$1 == group { print $2 }' "$list"; done)
installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' $wanted 2>/dev/null |
  sed -n 's/^ii //p' || true)
missing=$(comm -23 <(sort -u <<<"$wanted") <(sort -u <<<"$installed") | xargs)
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
  cat >&2 <<TXT
These Debian packages are missing: $missing
Install them with:
  sudo apt-get install --no-install-recommends $missing
(\`sudo apt-get update\` first if apt does not find them), then run the same command again.
TXT
  exit 1
fi
echo "Installing Debian packages: $missing"
export DEBIAN_FRONTEND=noninteractive
# A new machine has no package lists yet, and an old one may have stale lists. So update before an installation.
apt-get update -qq
apt-get install -y -qq --no-install-recommends $missing >/dev/null
