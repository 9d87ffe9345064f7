#!/usr/bin/env bash
# The static command as a new user has it, in five roots: copied, five seconds recorded, the report, the flame graph. Each root has a minute.
# Prints a row of docs/how-to/copy-one-file.md for each; -k FOLDER: roots of Debian that are there are taken from it, and left there.
# usage: test_roots.sh [-k FOLDER] COMMAND
set -euo pipefail
keep=''
[ "${1:-}" != -k ] || { keep=$2; shift 2; }
command=$(realpath "$1")
skip() { echo "SKIPPED: $*"; exit 0; }
fail() { echo "$*"; exit 1; }
[ "$(id -u)" -eq 0 ] || skip "not root, which debootstrap and chroot need"
for program in podman runc; do command -v $program > /dev/null || skip "podman or runc is not installed"; done
for program in debootstrap musl-gcc busybox; do command -v $program > /dev/null || skip "there is no $program"; done
"$command" doctor | tail -n 1 | grep -q works || skip "no privilege to sample"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' | head -n 1)
[ -n "$mirror" ] || skip "apt knows no mirror of Debian"

# What is mounted is not in the machine's mount namespace.
[ -n "${WINDLASS_OWN_MOUNTS:-}" ] || WINDLASS_OWN_MOUNTS=1 exec unshare --mount "$0" ${keep:+-k "$keep"} "$command"
work=$(mktemp -d)
host='' places=()
clean() {
  [ -z "$host" ] || kill "$host" 2> /dev/null || true
  for place in ${places[@]+"${places[@]}"}; do umount -l "$place/proc" "$place/sys" 2> /dev/null || true; done
  rm -rf --one-file-system "$work"
}
trap clean EXIT
keep=$(realpath "${keep:-$work}")

cat > "$work/fill.c" <<'C'
#include <stdlib.h>
#include <string.h>
#include <time.h>
static char block[1 << 16];
__attribute__((noinline)) void fill_blocks(int byte) { for (int i = 0; i < 100; ++i) memset(block, byte, sizeof block - (size_t)(byte & 31)); }
int main(int count, char** words) {
  const time_t end = time(0) + (count > 1 ? atoi(words[1]) : 5);
  for (int i = 0; time(0) < end; ++i) fill_blocks(i);
  return block[1] == 1;
}
C
musl-gcc -O2 -o "$work/fill" "$work/fill.c"

# step NAME COMMAND...: what it prints goes into $work/NAME.
took() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.1f", to - from }'; }
step() {
  local name=$1 from=$EPOCHREALTIME status=0
  shift
  "$@" > "$work/$name" 2> "$work/$name.said" || status=$?
  case $status in
    0 | 124 | 143) ;;  # those of the two kinds of timeout
    *) tail -n 20 "$work/$name" "$work/$name.said"; fail "$root: $name failed with $status" ;;
  esac
  row+=" $(took "$from") |"
}
# try NAME EXPECTED IN... -- RECORDED...: IN: what puts the command into the root. RECORDED: the arguments of record.
try() {
  local in=() root=$1 expected=$2 row="| $1 |" from=$EPOCHREALTIME
  shift 2
  while [ "$1" != -- ]; do in+=("$1"); shift; done
  shift
  if [ -n "$place" ]; then step copy cp "$command" "$place/windlass"; else step copy "${in[@]}" --version; fi
  step record "${in[@]}" record -F 997 -o /p.pb.gz "$@"
  step report "${in[@]}" report /p.pb.gz
  step page "${in[@]}" report --html /p.pb.gz
  local all
  all=$(took "$from")
  grep -q -- "$expected" "$work/report" || { cat "$work/record.said" "$work/report"; fail "$root: no function like $expected"; }
  grep -q '<html' "$work/page" || fail "$root: no page"
  awk -v all="$all" 'BEGIN { exit all < 60 ? 0 : 1 }' || fail "$root: $all s"
  echo "$row $all | \`$(grep -o -m 1 -- "${expected}[A-Za-z0-9_]*" "$work/report")\` |"
}
mounted() {
  place=$1
  places+=("$place")
  mkdir -p "$place/proc" "$place/sys"
  mount -t proc proc "$place/proc"
  mount --rbind /sys "$place/sys"
}

for release in bookworm testing; do
  [ -d "$keep/$release/usr" ] || debootstrap --variant=minbase $release "$keep/$release" "$mirror" > "$work/log" 2>&1 ||
    { tail -n 3 "$work/log"; echo "no root of Debian $release: debootstrap failed"; continue; }
  mounted "$keep/$release"
  try "Debian $release, minimal" Perl_ chroot "$place" /windlass -- -- timeout 5 perl -e 'my %h; for (my $i = 0;; ++$i) { $h{$i % 1000} .= "x" if $i % 7 }'
  rm "$place/windlass" "$place/p.pb.gz"
done

mkdir -p "$work/musl/lib"
cp "$(realpath /lib/ld-musl-*.so.1)" "$work/musl/lib/$(basename /lib/ld-musl-*.so.1)"
cp "$work/fill" "$work/musl/"
mounted "$work/musl"
try "musl, as Alpine" memset chroot "$place" /windlass -- -- /fill
grep -q fill_blocks "$work/report" || fail "no name of the program's own"

mkdir -p "$work/busybox/bin"
cp "$(realpath "$(command -v busybox)")" "$work/busybox/bin/"
mounted "$work/busybox"
try busybox busybox+0x chroot "$place" /windlass -- -- /bin/busybox timeout 5 /bin/busybox sh -c 'while :; do i=$((i+1)); done'

"$work/fill" 60 & host=$!
mkdir "$work/image" && cp "$command" "$work/image/windlass"
podman() { command podman --root "$work/store" --runroot "$work/run" --storage-driver vfs --cgroup-manager cgroupfs --runtime runc "$@"; }
tar -C "$work/image" -cf "$work/image.tar" windlass && podman import -q "$work/image.tar" alone > "$work/log" 2>&1 || { cat "$work/log"; fail "podman import failed"; }
mkdir "$work/profiles"
in_container() {
  podman run --rm --network none --log-driver none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --privileged --pid=host \
    -v "$work/profiles:/profiles" alone /windlass "${@/#\/p.pb.gz//profiles/p.pb.gz}"
}
place=''
try "a container of the file alone" fill_blocks in_container -- -a --duration 5
