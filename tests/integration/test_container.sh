#!/usr/bin/env bash
# Makes the container image of packaging/Containerfile, and profiles and walks a process of the host from a container of that image.
# usage: test_container.sh SOURCE_DIR FOLDER_OF_THE_STATIC_COMMAND
set -euo pipefail
source=$1 static=$2
skip() { echo "SKIPPED: $*"; exit 0; }
fail() { echo "$*"; exit 1; }
for program in podman runc; do command -v $program > /dev/null || skip "podman or runc is not installed"; done
[ "$(id -u)" -eq 0 ] || skip "no privilege to sample"
"$static/windlass" doctor | tail -n 1 | grep -q works || skip "no privilege to sample"

# What podman keeps is in the folder, too, and what it mounts there for itself is not in the machine's mount namespace.
[ -n "${WINDLASS_OWN_MOUNTS:-}" ] || WINDLASS_OWN_MOUNTS=1 exec unshare --mount "$0" "$@"
work=$(mktemp -d)
host=''
clean() {
  [ -z "$host" ] || kill "$host" 2> /dev/null || true
  rm -rf --one-file-system "$work"
}
trap clean EXIT
podman() { command podman --root "$work/store" --runroot "$work/run" --storage-driver vfs --cgroup-manager cgroupfs --runtime runc "$@"; }
podman build -q -t windlass -f "$source/packaging/Containerfile" "$static" > "$work/log" 2>&1 || { cat "$work/log"; fail "podman build failed"; }
[ "$(podman image inspect --format '{{.Size}}' windlass)" -lt 11000000 ] || fail "the image has more than the static command"

# A process of the host, with a function to look for.
cat > "$work/busy.c" <<'C'
volatile unsigned long turns;
__attribute__((noinline)) void busy_on_the_host(void) { for (;;) ++turns; }
int main(void) { busy_on_the_host(); return 0; }
C
cc -O1 -o "$work/busy_host" "$work/busy.c"
"$work/busy_host" & host=$!
mkdir "$work/profiles"
in_container() {
  podman run --rm --network none --log-driver none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --privileged --pid=host \
    -v "$work/profiles:/profiles" windlass "$@"
}
in_container --version
in_container record -a --duration 2
in_container report windlass.pb.gz > "$work/report"
grep -q busy_on_the_host "$work/report" || { cat "$work/report"; fail "no sample of the host's process"; }
"$static/windlass" report "$work/profiles/windlass.pb.gz" > /dev/null || fail "the profile is not in the mounted folder"
in_container walk "$host" > "$work/stack"
grep -q busy_on_the_host "$work/stack" || { cat "$work/stack"; fail "no function of the host's process in its stack"; }
