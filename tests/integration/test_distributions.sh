#!/usr/bin/env bash
# The sources as a new user has them, on other releases than this machine's: ./demo from a clean checkout, then all that is installed.
# Prints a row for each. Some ten minutes each. RELEASE: one that debootstrap knows, or noble (Ubuntu 24.04).
# usage: test_distributions.sh SOURCES [RELEASE...]
set -euo pipefail
sources=$(realpath "$1")
shift
releases=("$@")
[ "$#" -gt 0 ] || releases=(trixie sid noble)
skip() { echo "SKIPPED: $*"; exit 0; }
[ "$(id -u)" -eq 0 ] || skip "not root, which debootstrap and chroot need"
command -v debootstrap > /dev/null || skip "there is no debootstrap"
git -C "$sources" rev-parse HEAD > /dev/null 2>&1 || skip "the sources are in no repository of git"

# What is mounted is not in the machine's mount namespace.
[ -n "${WINDLASS_OWN_MOUNTS:-}" ] || WINDLASS_OWN_MOUNTS=1 exec unshare --mount "$0" "$sources" "${releases[@]}"
work=$(mktemp -d)
root=''
clean() {
  umount -l "$root"/proc "$root"/sys "$root"/dev 2> /dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean EXIT

# What the script for the release is called, and where its packages are, if not by default.
make_root() {
  case $1 in
    noble) debootstrap --no-check-gpg --variant=minbase --components=main,universe noble "$root" "" /usr/share/debootstrap/scripts/jammy ;;
    *) debootstrap --variant=minbase "$1" "$root" ;;
  esac
}
in_root() { chroot "$root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive bash -c "cd /windlass && $1"; }

failed=0
for release in "${releases[@]}"; do
  root=$work/$release
  make_root "$release" > "$work/log" 2>&1 || { tail -n 3 "$work/log"; echo "no root of $release: debootstrap failed"; failed=1; continue; }
  cp /etc/resolv.conf "$root/etc/"
  echo 'Acquire::Check-Valid-Until "false";' > "$root/etc/apt/apt.conf.d/99windlass"  # a mirror may be some weeks old
  for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder"; done
  git clone -q "$sources" "$root/windlass"
  from=$SECONDS
  if in_root ./demo > "$work/demo" 2>&1 && in_root 'cmake --preset install && cmake --build --preset install && build/release/src/cli/windlass --version' > "$work/install" 2>&1
  then echo "$release: $(in_root 'c++ --version' | head -n 1), $((SECONDS - from)) s: $(grep -m 1 'of the stacks whole' "$work/demo")"
  else tail -n 30 "$work/demo" "$work/install" 2> /dev/null; echo "$release: it cannot be built"; failed=1
  fi
  umount -l "$root"/proc "$root"/sys "$root"/dev
  rm -rf --one-file-system "$root" "$work/install"
done
exit "$failed"
