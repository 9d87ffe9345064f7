#!/usr/bin/env bash
# Makes the files of the agent's image: the command, the shared libraries that it needs, and nothing else. The static file
# has no store, so the image cannot be made of that.
# usage: agent_root.sh COMMAND FOLDER
# For example: packaging/agent_root.sh build/release/src/cli/windlass agent-root
#              podman build -t windlass-agent:0.3.0 -f packaging/Containerfile.agent agent-root
set -euo pipefail
command=$1 folder=$2
[ ! -e "$folder" ] || { echo "agent_root.sh: $folder exists. Way out: another folder" >&2; exit 2; }
mkdir -p "$folder/usr/bin" "$folder/tmp" "$folder/etc/windlass" "$folder/var/lib/windlass"
chmod 1777 "$folder/tmp"
cp "$command" "$folder/usr/bin/windlass"
strip "$folder/usr/bin/windlass"
# "libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x...)", and the loader without an arrow. Each keeps its path.
ldd "$command" | sed -n 's|.* => \(/[^ ]*\) .*|\1|p; s|^\t\(/[^ ]*\) .*|\1|p' | while read -r library; do
  mkdir -p "$folder$(dirname "$library")"
  cp -L "$library" "$folder$library"
done
