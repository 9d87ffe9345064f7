#!/usr/bin/env bash
# cmake/setup.sh compared with a made-up apt: nothing is installed where something would be removed. What apt-get says here it said on
# Debian 12, with gcc-multilib installed.
# usage: test_setup.sh SETUP_SCRIPT
set -euo pipefail
setup=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir bin simulated
PATH=$work/bin:$PATH
export work

# A user without rights, on a machine that has `present` installed; simulated/"a b" is what `apt-get install -s a b` says, and fails
# where its last line is an error. All calls of apt-get that are no simulation are kept.
cat > bin/id <<'SH'
#!/bin/sh
echo 1000
SH
cat > bin/sudo <<'SH'
#!/bin/sh
as_root=yes exec "$@"
SH
cat > bin/dpkg-query <<'SH'
#!/bin/sh
for last; do :; done
[ "$last" != present ] || echo "install ok installed"
SH
cat > bin/apt-get <<'SH'
#!/bin/bash
if [[ " $* " != *" -s "* ]]; then
  echo "${as_root:-no}: $*" >> "$work/calls"
  exit
fi
[ "$LC_ALL" = C ] || exit 99
packages=()
for word; do [[ $word == -* || $word == install ]] || packages+=("$word"); done
cat "$work/simulated/${packages[*]}" || exit 98
! tail -n 1 "$work/simulated/${packages[*]}" | grep -q '^E:'
SH
chmod +x bin/*

cat > simulated/g++-aarch64-linux-gnu <<'APT'
Reading package lists...
Building dependency tree...
Reading state information...
The following additional packages will be installed:
  g++-12-aarch64-linux-gnu gcc-12-aarch64-linux-gnu gcc-aarch64-linux-gnu
Suggested packages:
  gcc-12-doc gcc-12-locales autoconf automake libtool flex bison
  gdb-aarch64-linux-gnu gcc-doc
The following packages will be REMOVED:
  gcc-multilib
The following NEW packages will be installed:
  g++-12-aarch64-linux-gnu g++-aarch64-linux-gnu gcc-12-aarch64-linux-gnu
  gcc-aarch64-linux-gnu
0 upgraded, 4 newly installed, 1 to remove and 126 not upgraded.
Remv gcc-multilib [4:12.2.0-3]
Inst gcc-12-aarch64-linux-gnu (12.2.0-14cross1 Debian:12.15/oldstable [amd64])
Inst g++-12-aarch64-linux-gnu (12.2.0-14cross1 Debian:12.15/oldstable [amd64])
Inst gcc-aarch64-linux-gnu (4:12.2.0-3 Debian:12.15/oldstable [amd64])
Inst g++-aarch64-linux-gnu (4:12.2.0-3 Debian:12.15/oldstable [amd64])
Conf gcc-12-aarch64-linux-gnu (12.2.0-14cross1 Debian:12.15/oldstable [amd64])
Conf g++-12-aarch64-linux-gnu (12.2.0-14cross1 Debian:12.15/oldstable [amd64])
Conf gcc-aarch64-linux-gnu (4:12.2.0-3 Debian:12.15/oldstable [amd64])
Conf g++-aarch64-linux-gnu (4:12.2.0-3 Debian:12.15/oldstable [amd64])
APT
cat > simulated/cpio <<'APT'
Reading package lists...
Building dependency tree...
Reading state information...
Suggested packages:
  libarchive1
The following NEW packages will be installed:
  cpio
0 upgraded, 1 newly installed, 0 to remove and 126 not upgraded.
Inst cpio (2.13+dfsg-7.1 Debian:12.15/oldstable [amd64])
Conf cpio (2.13+dfsg-7.1 Debian:12.15/oldstable [amd64])
APT
cat > simulated/nonesuch <<'APT'
Reading package lists...
Building dependency tree...
Reading state information...
E: Unable to locate package nonesuch
APT

# setup LINE...: what windlass_setup says of a packages.txt of these lines, in `output`; its status, in `status`; apt's calls in `calls`
setup() {
  printf '[build]\n' > packages.txt
  printf '%s\n' "$@" >> packages.txt
  : > calls
  status=0
  output=$(bash -c 'set -euo pipefail; . "$1"; windlass_setup build test' - "$setup" 2>&1) || status=$?
}
fail() {
  printf 'line %s: %s; status %s, calls\n%s\nand output\n%s\n' "${BASH_LINENO[1]}" "$1" "$status" "$(cat calls)" "$output"
  exit 1
}
expect_status() { [ "$status" = "$1" ] || fail "expected status $1"; }
expect_text() { grep -qxF -- "$1" <<< "$output" || fail "expected the line '$1'"; }
expect_no_text() { ! grep -qF -- "$1" <<< "$output" || fail "expected nothing of '$1'"; }
expect_calls() { [ "$(cat calls)" = "$1" ] || fail "expected the calls '$1'"; }
bold() { printf '\033[1m== %s\033[0m' "$1"; }

# The parser: packages of other architectures, purges; text about removals is none.
expect_removals() {
  local said
  said=$(bash -c '. "$1"; removals' - "$setup" < "$1")
  [ "$said" = "$2" ] || { echo "line ${BASH_LINENO[0]}: of $1 the parser said '$said'"; exit 1; }
}
expect_removals simulated/g++-aarch64-linux-gnu gcc-multilib
expect_removals simulated/cpio ""
printf 'Remv libc6-dev:i386 [2.36-9] [gcc:amd64 ]\nPurg old [1]\nInst new [1] (2 Debian)\n  Remv none\nThe following packages will be REMOVED:\n  x\n' > several
expect_removals several "$(printf 'libc6-dev:i386\nold')"

setup present
expect_status 0; expect_calls ""

setup present cpio
expect_status 0
expect_calls "yes: update -qq
yes: install -y -qq --no-remove --no-install-recommends cpio"

# One that would remove something: nothing at all is installed, and the text names both.
cat simulated/g++-aarch64-linux-gnu > "simulated/cpio g++-aarch64-linux-gnu"
setup cpio '[test]' g++-aarch64-linux-gnu
expect_status 1
expect_calls "yes: update -qq"
expect_text "$(bold "nothing is installed: apt would remove packages of this machine: gcc-multilib")"
expect_text "  for g++-aarch64-linux-gnu: gcc-multilib"
expect_no_text "for cpio"
expect_text "  - if this machine can do without them, remove them first: sudo apt-get remove gcc-multilib"
expect_text "  - do without, and take out of packages.txt: g++-aarch64-linux-gnu"

# Two that remove something only together.
cp simulated/cpio simulated/heaptrack
cp simulated/g++-aarch64-linux-gnu "simulated/cpio heaptrack"
setup cpio heaptrack
expect_status 1
expect_calls "yes: update -qq"
expect_text "  for these together: cpio heaptrack"
expect_text "  - do without, and take out of packages.txt: cpio heaptrack"

# A package that other distributions call otherwise: the name that apt can install. One of them is enough.
cp simulated/nonesuch simulated/bpftool
cp simulated/cpio simulated/linux-tools-generic
setup 'bpftool|linux-tools-generic'
expect_status 0
expect_text "$(bold "installing linux-tools-generic")"
expect_calls "yes: update -qq
yes: install -y -qq --no-remove --no-install-recommends linux-tools-generic"
setup 'cpio|linux-tools-generic'
expect_text "$(bold "installing cpio")"
setup 'nonesuch|present'
expect_status 0; expect_calls ""

# What apt cannot install at all: in apt's words.
cp simulated/nonesuch "simulated/cpio nonesuch"
setup cpio nonesuch
expect_status 1
expect_calls "yes: update -qq"
expect_text "E: Unable to locate package nonesuch"
expect_text "$(bold "nothing is installed: apt cannot install cpio nonesuch")"
echo "all as expected"
