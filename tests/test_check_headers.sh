#!/usr/bin/env bash
# check_headers.sh on made-up headers: what must fail does, and for its reason.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/include/windlass/c"
cd "$work/include/windlass"

# expect STATUS TEXT...: what the script says of the headers as they are
expect() {
  local status=0 output text
  output=$("$here/check_headers.sh" "$work" g++) || status=$?
  for text in "${@:2}"; do
    if [ "$status" != "$1" ] || ! grep -qF -- "$text" <<< "$output"; then
      printf 'line %s: expected status %s and "%s"; status %s and\n%s\n' "${BASH_LINENO[0]}" "$1" "$text" "$status" "$output"
      exit 1
    fi
  done
}
# header NAME LINE...: one with these lines, seen once
header() { printf '%s\n' '#pragma once' "${@:2}" > "$1.h"; }

header sizes '#include <cstddef>' 'namespace windlass { using Size = std::size_t; }'
header c/windlass 'int windlass_walk(void);'
expect 0 "2 headers, 8 compilations, 0 errors"

header alone 'namespace windlass { inline Size none = 0; }'
expect 1 "windlass_alone.h.cpp" "does not name a type"
rm alone.h
header newer '#include <expected>' 'namespace windlass { using Result = std::expected<int, int>; }'
expect 1 "-std=c++20 -fno-exceptions -fno-rtti" "windlass_newer.h.cpp"
header newer 'namespace windlass { [[noreturn]] inline void give_up() { throw 1; } }'
expect 1 "exception handling disabled"
header newer 'namespace windlass { inline int twice(int value) { return value; } }' 'int used = windlass::twice(1);'
sed -i 1d newer.h
expect 1 "redefinition"
rm newer.h
header c/mixed 'namespace windlass { int none(); }'
expect 1 "gcc -std=c99"
header c/mixed '#ifdef __cplusplus' 'inline int none() { return (int)1.5; }' '#endif'
expect 1 "g++ -std=c++11" "old-style cast"
echo "all as expected"
