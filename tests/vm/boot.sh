#!/usr/bin/env bash
# Runs a command on a real Debian kernel in a virtual machine (qemu, by emulation): no disk, no network, no distribution,
# an initramfs of busybox and the files that are named.
#
#   boot.sh [-a amd64|arm64] [-m MiB] [-t SECONDS] [-r ROOT] [-o FOLDER] [-f FILE]... [COMMAND...]
#
# COMMAND is a line for the guest's shell; without one the shell itself is at the terminal (`poweroff -f` ends it).
#   -f FILE     stands in the guest where it stands here; a program is in its PATH, too, and has its shared libraries
#   -r ROOT     where libraries for another architecture are (default for arm64: build/aarch64-sysroot)
#   -o FOLDER   what COMMAND leaves in the guest's /out is copied there
#   -t SECONDS  until the machine is ended (default 300), -m MiB: its memory (2048)
#
# Exit status: the command's; 77, SKIPPED: no qemu, or no kernel could be fetched; 125: the machine failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../../build

fail() {
  echo "boot.sh: $2" >&2
  exit "$1"
}

architecture=amd64 memory=2048 limit=300 libraries='' results='' files=()
while getopts a:m:t:r:o:f: option; do
  case $option in
    a) architecture=$OPTARG ;;
    m) memory=$OPTARG ;;
    t) limit=$OPTARG ;;
    r) libraries=$OPTARG ;;
    o) results=$OPTARG ;;
    f) files+=("$OPTARG") ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 125 ;;
  esac
done
shift $((OPTIND - 1))

# thread=single: with a thread for each processor, qemu may keep code that the kernel of the guest has replaced meanwhile. On x86-64
# a breakpoint stands there during the replacement. The processors then meet it for ever (asm_exc_int3): the machine stands still.
case $architecture in
  amd64) qemu=(qemu-system-x86_64 -accel tcg,thread=single -cpu max) package=qemu-system-x86 console=ttyS0 triplet=x86_64-linux-gnu ;;
  arm64) qemu=(qemu-system-aarch64 -M virt -accel tcg -cpu max) package=qemu-system-arm console=ttyAMA0 triplet=aarch64-linux-gnu
         libraries=${libraries:-$build/aarch64-sysroot} ;;
  *) fail 125 "there is no kernel for '$architecture' here: amd64 or arm64" ;;
esac
command -v "${qemu[0]}" >/dev/null || fail 77 "SKIPPED: there is no ${qemu[0]}: install $package"
command -v cpio >/dev/null || fail 77 "SKIPPED: there is no cpio: install cpio"
kernel=$build/vm/$architecture
"$here/kernel.sh" "$architecture" "$kernel" || exit $?

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,proc,sys,dev,tmp,out}
cp "$kernel/bin/busybox" "$root/bin/"
cp "$here/init" "$root/init"
printf '%s\n' "$*" > "$root/command"

# put FILE PLACE: true if it was not there
put() {
  [ ! -e "$root$2" ] || return 1
  mkdir -p "$root$(dirname "$2")"
  cp -L "$1" "$root$2"
}

# The loader and the libraries that an ELF file names, and those that these name.
put_libraries() {
  local place name found
  readelf -hW "$1" >/dev/null 2>&1 || return 0  # a file of another kind
  place=$(readelf -lW "$1" 2>/dev/null | sed -n 's/.*Requesting program interpreter: \(.*\)\]/\1/p')
  if [ -n "$place" ] && [ -e "$libraries$place" ]; then put "$libraries$place" "$place" || true; fi
  for name in $(readelf -dW "$1" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    found=
    for place in /lib/$triplet /usr/lib/$triplet /usr/local/lib /lib64 /usr/lib /lib; do
      [ ! -e "$libraries$place/$name" ] || { found=$place/$name; break; }
    done
    [ -n "$found" ] || fail 125 "$1 needs $name, which is in no library folder of ${libraries:-this machine}"
    if put "$libraries$found" "$found"; then put_libraries "$libraries$found"; fi
  done
}

for file in ${files[@]+"${files[@]}"}; do
  [ -e "$file" ] || fail 125 "there is no $file: build it first"
  file=$(realpath -s "$file")
  put "$file" "$file" || continue
  put_libraries "$file"
  [ ! -x "$file" ] || ln -sf "$file" "$root/bin/"
done
(cd "$root" && find . | cpio -o -H newc --quiet) > "$work/initrd"

# no_timer_check: on a busy machine the guest may see no tick in the instant that it checks its timer for, and panics.
machine=("${qemu[@]}" -m "$memory" -smp 2 -nic none -display none -no-reboot -kernel "$kernel"/boot/vmlinuz* -initrd "$work/initrd"
         -append "console=$console quiet panic=-1 no_timer_check")
[ $# -gt 0 ] || { "${machine[@]}" -serial mon:stdio; exit; }

# The console carries what the command prints, and then, marked, its exit status and an archive of /out.
# shellcheck disable=SC2016
console='
  (at = index($0, "vm: exit status ")) > 0 { if (at > 1) print substr($0, 1, at - 1); print $NF > (work "/status"); over = 1; next }
  /^vm: out$/ { out = 1; next }
  /^vm: end$/ { out = 0; next }
  out { print > (work "/out"); next }
  !over { print; fflush() }'
status=0
timeout "$limit" "${machine[@]}" -serial stdio -monitor none < /dev/null 2>&1 | tr -d '\r' |
  awk -v work="$work" "$console" || status=$?
[ "$status" -ne 124 ] || fail 125 "the machine was ended after $limit s: give it more with -t"
[ -s "$work/status" ] || fail 125 "the machine ended before the command did: see above"
if [ -n "$results" ]; then
  mkdir -p "$results"
  base64 -d "$work/out" | tar -xz -C "$results" || fail 125 "what the command left in /out did not come through the console whole"
fi
exit "$(cat "$work/status")"
