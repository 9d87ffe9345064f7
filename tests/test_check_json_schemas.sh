#!/usr/bin/env bash
# json_schemas.py with a table that was changed: what must fail does, and for its reason.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
table=$work/src/cli/json_keys.tsv
mkdir -p "$work/src/cli" "$work/docs"
cp -r "$here/../docs/schema" "$work/docs"

# expect STATUS TEXT [SED]: what `sources` says if the table is changed so
expect() {
  local status=0 output
  sed "${3:-}" "$here/../src/cli/json_keys.tsv" > "$table"
  output=$("$here/json_schemas.py" sources "$work") || status=$?
  if [ "$status" != "$1" ] || ! grep -qF -- "$2" <<< "$output"; then
    printf 'line %s: expected status %s and "%s"; status %s and\n%s\n' "${BASH_LINENO[0]}" "$1" "$2" "$status" "$output"
    exit 1
  fi
}

expect 0 ' in 4 schemas, 0 errors'
expect 1 'walk.json: new of walk is not in the schema' '$a walk\tnew\tnumber\tx'
expect 1 'walk.json: sp is in no row of walk' '/^walk\tsp\t/d'
expect 1 "walk.json: pc is ['integer'], and text in the table" 's/^walk\tpc\tnumber/walk\tpc\ttext/'
expect 1 'walk.json has other meanings than the table' 's/^walk\tpc\tnumber\tof a/&n other/'
echo '{}' > "$work/docs/schema/other.json"
expect 1 'docs/schema/other.json: a schema of no section'
echo 'all as expected'
