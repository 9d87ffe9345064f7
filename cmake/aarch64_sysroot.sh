#!/usr/bin/env bash
# Lays out arm64 libraries for cross-compilation and for qemu-user: cmake/aarch64_sysroot.sh DIRECTORY [PACKAGE...]
# Debian's arm64 packages are downloaded with apt and unpacked into DIRECTORY; nothing is installed and the machine's own
# package state is neither used nor changed. What was unpacked is listed with its version in DIRECTORY/packages.
# Exit status 0: the sysroot is there. 3: SKIPPED, the archive cannot be reached or this is no Debian machine.
set -euo pipefail
. "$(dirname "$0")/foreign_apt.sh"
[ $# -ge 1 ] || { echo "usage: $0 DIRECTORY [PACKAGE...]" >&2; exit 2; }
root=$1
shift

# For the run: the C and C++ libraries, and a second C library without unwind information. For the build: what the library, the
# command, the profiler and their tests link to, with what those link to themselves. The C library's own headers and the kernel's
# come with the cross compiler.
packages=(libc6 libstdc++6 libgcc-s1 musl musl-dev libgtest-dev libfmt-dev libfmt9 zlib1g-dev zlib1g liblzma-dev liblzma5
          libzstd-dev libzstd1 liblz4-dev liblz4-1 libzydis-dev libzydis4.0 libzycore-dev libzycore1.4
          libbpf-dev libbpf1 libelf-dev libelf1 libdw-dev libdw1 libbz2-dev libbz2-1.0 libiberty-dev
          libncurses-dev libncursesw6 libncurses6 libtinfo6 libsqlite3-dev libsqlite3-0
          libcli11-dev nlohmann-json3-dev libprotozero-dev libasmjit-dev)
[ $# -eq 0 ] || packages=("$@")

wanted=$(printf '%s\n' "${packages[@]}" | sha256sum)
if [ "$(cat "$root/complete" 2>/dev/null)" = "$wanted" ]; then
  echo "aarch64 sysroot: $root is there ($(wc -l < "$root/packages") packages)"
  exit 0
fi

skip() { echo "SKIPPED aarch64: $*"; exit 3; }

rm -rf "$root"
foreign_apt_open arm64 "$root" || skip "$foreign_apt_error"
foreign_apt_unpack "${packages[@]}" || skip "$foreign_apt_error"
foreign_apt_close
[ ! -d "$root/usr/share" ] || find "$root/usr/share" -mindepth 1 -maxdepth 1 ! -name wine ! -name cmake -exec rm -rf {} +
echo "$wanted" > "$root/complete"
echo "aarch64 sysroot: unpacked into $root:"
sed 's/Package: //; s/Version: //; s/^/  /' "$root/packages"
