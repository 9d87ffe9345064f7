#!/usr/bin/env bash
# Builds the Debian packages of the commit that is checked out, reads them with lintian, and installs, uses, removes and purges them in
# a root of their own, from the mirror that this machine's apt uses. WINDLASS_PACKAGES: a folder with the packages, which are then not built.
# usage: test_packages.sh SOURCE_DIR
set -euo pipefail
source=$1
skip() { echo "SKIPPED: $*"; exit 0; }
[ "$(id -u)" -eq 0 ] || skip "not root, which debootstrap and chroot need"
for program in dpkg-buildpackage dh lintian debootstrap; do command -v $program > /dev/null || skip "there is no $program"; done
# shellcheck disable=SC1091
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' "Codename: $release" | head -n 1)
[ -n "$mirror" ] || skip "apt knows no mirror of Debian $release"

work=$(mktemp -d)
root=$work/root
clean() {
  umount -R "$root/sys" 2> /dev/null || true
  umount "$root/proc" 2> /dev/null || true
  ! mountpoint -q "$root/proc" && ! mountpoint -q "$root/sys" && rm -rf --one-file-system "$work"
}
trap clean EXIT
run() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }
quietly() { "$@" > "$work/log" 2>&1 || { tail -n 30 "$work/log"; echo "failed: $*"; exit 1; }; }

packages=${WINDLASS_PACKAGES:-}
if [ -z "$packages" ]; then
  mkdir "$work/source"
  git -C "$source" archive HEAD | tar -x -C "$work/source"
  "$source/debian/changelog.py" "$work/source/debian/changelog"
  (cd "$work/source" && quietly dpkg-buildpackage -us -uc -b)
  packages=$work
fi
found=$(lintian --fail-on error,warning "$packages"/*windlass*.deb) || { echo "$found"; exit 1; }

quietly debootstrap --variant=minbase "$release" "$root" "$mirror" || skip "debootstrap failed"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys" && mount --make-rslave "$root/sys"
# What is there before: the packages' own dependencies stay.
files() { (cd "$root" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./tmp -o -path ./var/log -o -path ./var/cache -o -path ./var/lib/dpkg -o -path ./var/lib/apt \) -prune -o -print | LC_ALL=C sort); }
cp "$packages"/*windlass*.deb "$root/tmp/"
mapfile -t names < <(cd "$root/tmp" && for file in *windlass*.deb; do dpkg-deb -f "$file" Package; done)
quietly run apt-get install -y --no-install-recommends gcc libc6-dev pkg-config man-db
mapfile -t needs < <(for file in "$root"/tmp/*windlass*.deb; do dpkg-deb -f "$file" Depends; done | tr ',' '\n' | sed 's/^ *//; s/[ (|:].*//' | grep -v windlass | sort -u)
quietly run apt-get install -y --no-install-recommends "${needs[@]}"
files > "$work/before"

quietly run sh -c 'apt-get install -y --no-install-recommends /tmp/*windlass*.deb'
run windlass --version
run sh -c 'sleep 60 & windlass walk $! > /tmp/stack; status=$?; kill $!; cat /tmp/stack; exit $status'
grep -q libc "$root/tmp/stack" || { echo "no frame of the C library"; exit 1; }
cat > "$root/tmp/c.c" <<'C'
#include <stdio.h>
#include <windlass/c/windlass.h>
int main(void) { return puts(windlass_version_text()) < 0; }
C
run sh -c 'gcc -Wall -Werror /tmp/c.c $(pkg-config --cflags --libs windlass) -o /tmp/c && /tmp/c'
for file in /usr/share/man/man1/windlass-record.1.gz /usr/share/bash-completion/completions/windlass /usr/share/doc/windlass/copyright \
    /usr/share/doc/windlass/windlass.spdx.json /etc/windlass/agent.conf \
    /lib/systemd/system/windlass-agent.service /lib/systemd/system/windlass-record.service; do
  run test -s "$file" || { echo "$file is not installed"; exit 1; }
done
mkdir -p "$root/var/lib/windlass" && touch "$root/var/lib/windlass/recording.pb.gz"  # what the unit leaves

quietly run apt-get purge -y "${names[@]}"
files > "$work/after"
diff "$work/before" "$work/after" || { echo "the packages leave these files"; exit 1; }
echo "${#names[@]} packages: installed, used, purged"
