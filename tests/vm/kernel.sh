#!/usr/bin/env bash
# kernel.sh ARCHITECTURE FOLDER: Debian's cloud kernel and a static busybox for amd64 or arm64, unpacked into FOLDER once.
# Nothing is installed. Exit status 77 and a sentence where the package archive cannot be reached.
set -euo pipefail
. "$(dirname "$0")/../../cmake/foreign_apt.sh"
architecture=$1 folder=$2

mkdir -p "$folder"
exec 9> "$folder.lock"
flock 9  # tests that want the same kernel may start at the same time
[ -e "$folder/complete" ] && exit 0

skip() {
  echo "SKIPPED: no kernel for $architecture: $*" >&2
  exit 77
}
rm -rf "$folder"
foreign_apt_open "$architecture" "$folder" || skip "$foreign_apt_error"
foreign_apt_depends "linux-image-cloud-$architecture" linux-image- || skip "$foreign_apt_error"
foreign_apt_unpack "$foreign_apt_found" busybox-static || skip "$foreign_apt_error"
foreign_apt_close
rm -rf "$folder/usr" "$folder/lib/modules"  # the machine has no disk and loads none
touch "$folder/complete"
