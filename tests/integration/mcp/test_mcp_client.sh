#!/usr/bin/env bash
# npm's @modelcontextprotocol/sdk as the client of `windlass mcp`.  test_mcp_client.sh COMMAND FETCH FOLDER
# FETCH: cmake/fetch_npm_package.sh. FOLDER: keeps the packages of packages.tsv, by name, version and hash.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
command=$1 fetch=$2 folder=$3
command -v node >/dev/null && command -v npm >/dev/null || { echo "SKIPPED: no node or npm"; exit 0; }
mkdir -p "$folder/node_modules"
while IFS=$'\t' read -r name version integrity; do
  place=$folder/node_modules/$name
  [ "$(cat "$place/.integrity" 2>/dev/null || true)" != "$integrity" ] || continue
  status=0
  text=$(sh "$fetch" "$name" "$version" "$integrity" "$place") || status=$?
  [ "$status" != 1 ] || { echo "SKIPPED: $text"; exit 0; }
  [ "$status" = 0 ] || { echo "$text"; exit 1; }
done < "$here/packages.tsv"
cp "$here/client.mjs" "$folder"  # node looks for packages beside the file
python3 "$here/make_profile.py" "$folder/made.pb.gz"
node "$folder/client.mjs" "$command" "$folder/made.pb.gz"
