#!/usr/bin/env bash
# Prints the path of LLVM's libunwind, unpacked from its Debian package: installed it would conflict with nongnu's.
# Prints nothing where there is none; the benchmark then leaves it out.
set -euo pipefail
cd "$(dirname "$0")/.."
directory=$PWD/build/peers
mkdir -p "$directory"
if ! ls "$directory"/libunwind-19_*.deb >/dev/null 2>&1; then
  (cd "$directory" && apt-get download libunwind-19 >/dev/null 2>&1) || exit 0
fi
[ -d "$directory/libunwind-19" ] || dpkg -x "$directory"/libunwind-19_*.deb "$directory/libunwind-19"
find "$directory/libunwind-19" -name 'libunwind.so.1.0' -type f | head -1
