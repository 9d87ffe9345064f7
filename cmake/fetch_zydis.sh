#!/bin/sh
# fetch_zydis.sh VERSION SHA256 DESTINATION
# Unpacks Zydis's sources of this version into DESTINATION, from the Debian archive that the machine's apt is set up for, if the
# tarball has this hash. Debian has Zydis as a shared library only. Exit 1: no apt, or the archive is out of reach. Exit 2: the tarball
# is another.
set -eu
version=$1 hash=$2 destination=$3
helper=/usr/lib/apt/apt-helper
[ -x "$helper" ] || { echo "no apt here to fetch Zydis's sources with"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tarball=$work/zydis.tar.gz
archives=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' | sort -u)
for archive in $archives; do
  timeout 120 "$helper" -o APT::Sandbox::User=root download-file "${archive}pool/main/z/zydis/zydis_$version.orig.tar.gz" "$tarball" \
    >"$work/log" 2>&1 && break
  rm -f "$tarball"
done
[ -f "$tarball" ] || { echo "apt cannot fetch Zydis's sources: $(grep -m 1 '^E:' "$work/log" || echo 'no Debian archive is set up')"; exit 1; }
found=$(sha256sum "$tarball" | cut -d ' ' -f 1)
[ "$found" = "$hash" ] || { echo "the sources of Zydis $version have SHA-256 $found, expected $hash"; exit 2; }
rm -rf "$destination"
mkdir -p "$destination"
tar -xzf "$tarball" -C "$destination" --strip-components=1
printf '%s\n' "$hash" >"$destination/.hash"
