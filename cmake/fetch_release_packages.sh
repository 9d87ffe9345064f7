#!/bin/sh
# fetch_release_packages.sh RELEASE DESTINATION PACKAGE[=SHA256]...
# Unpacks packages of another release of Debian or Ubuntu into DESTINATION, with what they need to run by chroot. Nothing is configured.
# RELEASE is one that debootstrap knows. A hash is of the package's file; if one is missing, debootstrap checks the archive's signature.
# Exit 1: not root, or the archive is out of reach. Exit 2: a file is not the one that was asked for.
set -eu
release=$1 destination=$2
shift 2
[ "$(id -u)" -eq 0 ] || { echo "not root, which debootstrap and chroot need"; exit 1; }
command -v debootstrap >/dev/null || { echo "there is no debootstrap"; exit 1; }
names='' trust=--no-check-gpg
for package; do
  names=$names,${package%%=*}
  case $package in *=*) ;; *) trust='' ;; esac
done
rm -rf "$destination"
mkdir -p "$destination"
case $release in
  jammy) components=--components=main,universe mirror='' ;;
  *) components='' mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' | head -n 1) ;;
esac
# shellcheck disable=SC2086
timeout 240 debootstrap --foreign $trust --variant=minbase $components --include="${names#,}" "$release" \
  "$destination" $mirror >"$destination.log" 2>&1 || { echo "debootstrap of $release failed: $(tail -n 1 "$destination.log")"; exit 1; }
for package; do
  case $package in *=*) ;; *) continue ;; esac
  file=$(ls "$destination/var/cache/apt/archives/${package%%=*}_"*.deb)
  found=$(sha256sum "$file")
  [ "${found%% *}" = "${package#*=}" ] || { echo "$file has the hash ${found%% *}, expected ${package#*=}"; exit 2; }
done
for file in "$destination"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$file" "$destination"; done
rm -rf "$destination/var/cache/apt/archives" "$destination/usr/share/doc" "$destination/usr/share/locale"
touch "$destination/.done"
