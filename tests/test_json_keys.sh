#!/usr/bin/env bash
# json_keys.py compared with a made-up tree: what must fail does, and for its reason.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

tree() {
  rm -rf "$work/tree"
  mkdir -p "$work"/tree/{src/cli,src/profiler/export,docs/reference}
  cd "$work/tree"
  printf '# a comment\nwalk\tthread\tnumber\tthe id\nrows\tbegin\tnumber\twhere it begins\nreport\ttype\ttext\tthe kind\n' \
    > src/cli/json_keys.tsv
  echo 'json_.member("thread", id); json_.end_object();' > src/cli/walk_output.cpp
  echo 'put("{\"begin\":");' > src/cli/rows.cpp
  echo 'json_.key("type");' > src/profiler/export/json.cpp
  "$here/json_keys.py" fill .
}

# expect STATUS TEXT: what `sources` says of the tree as it is
expect() {
  local status=0 output
  output=$("$here/json_keys.py" sources .) || status=$?
  if [ "$status" != "$1" ] || ! grep -qF -- "$2" <<< "$output"; then
    printf 'line %s: expected status %s and "%s"; status %s and\n%s\n' "${BASH_LINENO[0]}" "$1" "$2" "$status" "$output"
    exit 1
  fi
}

tree; expect 0 '3 keys in 3 sections, 0 errors'
tree; echo 'json_.member_or_null("new", x);' >> src/cli/walk_output.cpp; expect 1 'walk: new is printed, and not in'
tree; echo > src/cli/rows.cpp; expect 1 'rows: begin is in src/cli/json_keys.tsv, and not printed'
tree; echo 'out.text("{\"other\":");' > src/cli/emit.cpp; expect 1 'src/cli/emit.cpp prints other, and is of no section'
tree; sed -i s/thread/task/ src/cli/json_keys.tsv; expect 1 'walk: task is in'
tree; echo >> docs/reference/json-keys.md; expect 1 'docs/reference/json-keys.md is not what'
tree; printf 'walk\tthread\tnumber\tagain\n' >> src/cli/json_keys.tsv; expect 1 'twice: walk thread'
tree; printf 'walk\tname\n' >> src/cli/json_keys.tsv; expect 1 'not four columns: walk name'

# printed COMMAND'S-OUTPUT STATUS TEXT: a command that prints this, whatever it is asked
printed() {
  local status=0 output
  printf '#!/bin/sh\ncase $1 in dump) echo %s;; walk) echo %s;; rows) echo %s;; *) echo %s;; esac\n' \
    "'{\"format\":\"dwarf\"}'" "'$1'" "'{\"begin\":1}'" "'{\"verdict\":1}'" > command
  chmod +x command
  output=$("$here/json_keys.py" printed . ./command /bin/sh) || status=$?
  if [ "$status" != "$2" ] || ! grep -qF -- "$3" <<< "$output"; then
    printf 'line %s: expected status %s and "%s"; status %s and\n%s\n' "${BASH_LINENO[0]}" "$2" "$3" "$status" "$output"
    exit 1
  fi
}
tree
printf 'doctor\tverdict\tnumber\tx\ndump of DWARF\tformat\ttext\tx\nwalk\tregisters\tobject\tx\n' >> src/cli/json_keys.tsv
printed '{"thread":1,"registers":{"rax":1}}' 0 '4 objects with 5 keys in 4 sections, 0 errors'
printed '{"thread":1,"registers":[{"deep":1}]}' 1 'walk: deep is printed, and not in'
printed '' 1 'walk printed nothing'
echo 'all as expected'
