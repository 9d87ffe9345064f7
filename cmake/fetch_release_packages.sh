#!/bin/sh
# fetch_release_packages.sh RELEASE DESTINATION PACKAGE=SHA256...
# Unpacks packages of another release of Debian or Ubuntu into DESTINATION, with what they need to run by chroot. Nothing is configured.
# RELEASE is one that debootstrap knows; the hashes are of the packages' files. Exit 1: not root, or the archive is out of reach.
# Exit 2: a file is not the one that was asked for.
set -eu
release=$1 destination=$2
shift 2
[ "$(id -u)" -eq 0 ] || { echo "not root, which debootstrap and chroot need"; exit 1; }
command -v debootstrap >/dev/null || { echo "there is no debootstrap"; exit 1; }
names=''
for package; do names=$names,${package%%=*}; done
rm -rf "$destination"
mkdir -p "$destination"
# The hashes are checked here: the keys of Ubuntu are no package of Debian's.
timeout 240 debootstrap --foreign --no-check-gpg --variant=minbase --components=main,universe --include="${names#,}" "$release" \
  "$destination" >"$destination.log" 2>&1 || { echo "debootstrap of $release failed: $(tail -n 1 "$destination.log")"; exit 1; }
for package; do
  file=$(ls "$destination/var/cache/apt/archives/${package%%=*}_"*.deb)
  found=$(sha256sum "$file")
  [ "${found%% *}" = "${package#*=}" ] || { echo "$file has the hash ${found%% *}, expected ${package#*=}"; exit 2; }
done
for file in "$destination"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$file" "$destination"; done
rm -rf "$destination/var/cache/apt/archives" "$destination/usr/share/doc" "$destination/usr/share/locale"
touch "$destination/.done"
