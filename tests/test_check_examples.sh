#!/usr/bin/env bash
# check_examples.py on a made-up tree: what must fail does, and for its reason.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# block LANGUAGE LINE...: of a page
block() {
  printf '\n```%s\n' "$1"
  printf '%s\n' "${@:2}"
  printf '```\n'
}

# tree: a page with an example of each kind, and a command that knows one option
tree() {
  rm -rf "$work/tree"
  mkdir -p "$work"/tree/{docs/how-to,examples,include,tests/integration/consumer}
  cd "$work/tree"
  echo '{"configurePresets": [{"name": "release"}]}' > CMakePresets.json
  echo 'target_link_libraries(consumer windlass::windlass)' > tests/integration/consumer/CMakeLists.txt
  echo 'int  f() { return 1; }  // of a program' > examples/f.cpp
  printf '#!/bin/sh\necho "  -a,--all   everything"\n[ "$1" = record ]\n' > windlass
  chmod +x windlass
  printf 'Text\n\n// ---- docs/how-to/x.md\nint known;\n// ---- docs/how-to/x.md in C\nint of_c;\n' > context
  {
    block cpp 'int twice = 2 * known;' '...'
    block cpp 'known = twice;'
    block cpp 'int f() {' '  return 1;' '}'
    block c 'int g(void) {' '  return of_c;' '}' '' 'of_c = g();'
    block sh 'cmake --preset release' 'sudo windlass record --all -- ./app --its-option'
    block cmake 'target_link_libraries(app windlass::windlass)'
  } > docs/how-to/x.md
}

# expect STATUS TEXT: what the script says of the tree as it is
expect() {
  local status=0 output
  output=$("$here/check_examples.py" . context ./windlass 2>&1) || status=$?
  if [ "$status" != "$1" ] || ! grep -qF -- "$2" <<< "$output"; then
    printf 'line %s: expected status %s and "%s"; status %s and\n%s\n' "${BASH_LINENO[0]}" "$1" "$2" "$status" "$output"
    exit 1
  fi
}

tree; expect 0 "1 in a program of examples/, 3 compiled, 1 read by bash, 1 of CMake, 1 options of windlass; 0 errors"

# Code: with the page's line, in both languages.
tree; block cpp 'int z = unknown;' >> docs/how-to/x.md; expect 1 "docs/how-to/x.md:35:9: error: "
tree; block c 'int z = unknown;' >> docs/how-to/x.md; expect 1 "docs/how-to/x.md:35:9: error: "
tree; block cpp 'int main() { return unknown; }' >> docs/how-to/x.md; expect 1 "docs/how-to/x.md:35: "
tree; block cpp 'int z = unknown;' >> docs/how-to/x.md; echo '// ---- docs/how-to/x.md 5: not compiled: a reason' >> context; expect 0 "1 not compiled, with a reason"
tree; echo '// ---- docs/how-to/x.md 9: not compiled: a reason' >> context; expect 1 "docs/how-to/x.md: no code block 9 that has to be left out"

# All else, in one page.
tree
block sh 'if' >> docs/how-to/x.md; expect 1 "docs/how-to/x.md:35: bash: line 2: syntax error"
tree; block sh 'cmake --preset gone' >> docs/how-to/x.md; expect 1 "docs/how-to/x.md:35: there is no preset gone"
tree; block sh 'tests/gone.sh' >> docs/how-to/x.md; expect 1 "docs/how-to/x.md:35: there is no script tests/gone.sh"
tree; block cmake 'windlass::gone' >> docs/how-to/x.md; expect 1 "does not use windlass::gone"
tree; block rust 'x' >> docs/how-to/x.md; expect 1 "docs/how-to/x.md:35: nothing checks rust"
tree; echo 'Say `windlass record --gone`.' >> docs/how-to/x.md; expect 1 "docs/how-to/x.md:33: windlass record has no --gone"
tree; echo 'Say `windlass gone -a`.' >> docs/how-to/x.md; expect 1 "docs/how-to/x.md:33: windlass has no gone"
echo "all as expected"
