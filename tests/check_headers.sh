#!/usr/bin/env bash
# Every public header below ROOT/include compiles alone and twice in a row: as C++20 and C++23, with and without exceptions and RTTI.
# The C headers do so as C99, C11 and C++11, too. Prints the command and the first error of each that does not, and how much was compiled.
# usage: check_headers.sh ROOT [COMPILER...]
#
# One compiler reads each header alone, as C++20: another one with each commit, and all of them with WINDLASS_WHOLE=1. For the other
# ways one file includes all headers: a way changes what the language knows, not what a header includes.
set -euo pipefail
commit=$(git -C "$1" rev-parse --short=4 HEAD 2> /dev/null || echo 0)
cd "$1/include"
shift
[ $# -gt 0 ] || set -- g++ clang++-14 clang++-22
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mapfile -t headers < <(find windlass -name '*.h' | sort)
if [ "$(uname -m)" != x86_64 ]; then  # that one says so itself
  mapfile -t headers < <(printf '%s\n' "${headers[@]}" | grep -v /libunwind.h)
fi
mapfile -t c_headers < <(printf '%s\n' "${headers[@]}" | grep /c/)
options="-Wall -Wextra -Wpedantic -Wshadow -Werror -I. -fsyntax-only"
plain="-fno-exceptions -fno-rtti"

# twice NAME HEADER...: writes a file that includes each of them two times
twice() { printf '#include <%s>\n' "${@:2}" "${@:2}" > "$work/$1"; }
# runs COMPILER OPTION...: can it compile an empty file?
runs() { "$@" -x c++ -fsyntax-only /dev/null 2> "$work/said"; }

for header in "${headers[@]}"; do
  twice "${header//\//_}.cpp" "$header"
done
twice all.cpp "${headers[@]}"
twice all.c "${c_headers[@]}"
cp "$work/all.c" "$work/all_c.cpp"

missing='' present=()
for compiler; do
  if runs "$compiler"; then present+=("$compiler"); else missing+=" $compiler"; fi
done
[ ${#present[@]} -gt 0 ] || { echo "SKIPPED: there is no$missing"; exit 0; }
by_turns=${present[16#$commit % ${#present[@]}]}
for compiler in "${present[@]}"; do
  newest=-std=c++23
  runs "$compiler" $newest || newest=-std=c++2b
  if [ -n "${WINDLASS_WHOLE:-}" ] || [ "$compiler" = "$by_turns" ]; then
    for header in "${headers[@]}"; do
      echo "$compiler -std=c++20 $plain $options $work/${header//\//_}.cpp"
    done
  fi
  for way in -std=c++20 $newest "$newest $plain"; do
    echo "$compiler $way $options $work/all.cpp"
  done
  if runs "$compiler" -stdlib=libc++ -include version; then
    echo "$compiler -std=c++20 -stdlib=libc++ $options $work/all.cpp"
  fi
  c_compiler=${compiler/clang++/clang}
  for way in -std=c99 -std=c11; do
    echo "${c_compiler/g++/gcc} $way -Wstrict-prototypes -Wc++-compat $options $work/all.c"
  done
  echo "$compiler -std=c++11 -Wold-style-cast $options $work/all_c.cpp"
done > "$work/commands"
[ -z "$missing" ] || echo "SKIPPED: there is no$missing"

# one COMMAND: runs it, and says of a failure the command and its first error
one() {
  local said
  # shellcheck disable=SC2086
  said=$($1 2>&1) && return
  printf '%s\n  %s\n' "${1//$PWD\//}" "$(grep -m1 -E 'error|fatal' <<< "$said")"
  return 1
}
export -f one
xargs -P "$(nproc)" -d '\n' -n 1 bash -c 'one "$1"' one < "$work/commands" || exit 1
echo "${#headers[@]} headers, $(wc -l < "$work/commands") compilations, 0 errors"
