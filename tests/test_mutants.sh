#!/usr/bin/env bash
# mutants/run.py on a made-up project: which mutants it finds, that each changes what the program does, and what it says of its tests.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
/usr/bin/python3 -c "import sys; sys.path.insert(0, '$here/mutants'); import operators" 2>/dev/null ||
  { echo "SKIPPED: there is no libclang for Python (Debian's package python3-clang-19)"; exit 0; }

tree=$work/tree
mkdir -p "$tree"/{src,tests/mutants,build/release}
cp "$here/mutants/mutant.h" "$tree/tests/mutants"
cat > "$tree/src/f.cpp" <<'CPP'
#include "f.h"
namespace made {
constexpr int kLimit = 8 + 1;
static_assert(kLimit == 9);
int clamp(int a) {
  constexpr int kFirst = 50 + 1, kSecond = 60 + 1;
  static_assert(kFirst < kSecond);
  if (a > kLimit && a != 100) {
    a = kLimit;
  }
  switch (a) {
    case 3 + 1: return a + 1;
    default: return twice(a);
  }
}
bool Shape::round() const { return corners == 0; }
consteval int scaled(int a) { return a * 70; }
static_assert(scaled(2) == 140);
}  // namespace made
CPP
cat > "$tree/src/f.h" <<'CPP'
#pragma once
namespace made {
int clamp(int a);
inline int twice(int a) { return a * 2; }
struct Shape {
  int corners = 0;
  bool round() const;
};
}  // namespace made
CPP
cat > "$tree/tests/test_f.cpp" <<'CPP'
#include "f.h"
int main() { return made::clamp(4) == 5 && made::clamp(20) == 18 && made::clamp(9) == 18 && made::Shape{0}.round() && !made::Shape{3}.round() ? 0 : 1; }
CPP
# A slower test, which looks at 100.
cat > "$tree/tests/test_g.cpp" <<'CPP'
#include "f.h"
int main() { return made::clamp(100) == 200 ? 0 : 1; }
CPP
# Slower tests that say nothing of a mutant: they fail always, every second time, and always after the first time.
cat > "$tree/tests/busy.sh" <<'SH'
case $1 in
  always) exit 1 ;;
  by_turns) if [ -e turn ]; then rm turn; exit 1; fi; : > turn ;;
  once) [ ! -e once ] || exit 1; : > once ;;
esac
SH
cat > "$tree/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(made CXX)
set(CMAKE_CXX_STANDARD 20)
enable_testing()
foreach(test test_f test_g)
  add_executable(${test} src/f.cpp tests/${test}.cpp)
  target_include_directories(${test} PRIVATE src)
  add_test(NAME ${test} COMMAND ${test})
endforeach()
foreach(how always by_turns once)
  add_custom_target(test_${how})
  add_test(NAME test_${how} COMMAND sh ${CMAKE_SOURCE_DIR}/tests/busy.sh ${how})
endforeach()
CMAKE
cat > "$tree/tests/mutants/tests.list" <<'LIST'
# a prefix, who judges quickly, and who judges what is left
src       test_f  | test_always test_by_turns test_once test_g
LIST
: > "$tree/tests/mutants/equivalent.list"
echo 'src/left_out.*  # nobody calls it' > "$tree/tests/mutants/left_out.list"
echo 'int left_out() { return 1 + 1; }' > "$tree/src/left_out.cpp"
printf '[{"directory": "%s", "file": "%s/src/f.cpp", "command": "c++ -I%s/src -std=c++20 -o f.o -c %s/src/f.cpp"}]\n' "$tree" "$tree" "$tree" "$tree" \
  > "$tree/build/release/compile_commands.json"
run() { /usr/bin/python3 "$here/mutants/run.py" --root "$tree" --seed 1 --sample 100 --jobs 1 "$@"; }

# expect_found TEXT, expect_not_found TEXT: among the mutants.
found=$(run --list | sed -E 's/^ *[0-9]+ //')
expect_found() { grep -qxF -- "$1" <<< "$found" || { printf 'not found: %s\namong:\n%s\n' "$1" "$found"; exit 1; }; }
expect_not_found() { ! grep -qF -- "$1" <<< "$found" || { printf 'found: %s\namong:\n%s\n' "$1" "$found"; exit 1; }; }
expect_found "src/f.cpp:8: comparison: made::clamp: a > kLimit -> (a) >= (kLimit)"
expect_found "src/f.cpp:8: logic: made::clamp: a > kLimit && a != 100 -> (a > kLimit) || (a != 100)"
expect_found "src/f.cpp:8: half: made::clamp: a > kLimit && a != 100 -> !!(a > kLimit)"
expect_found "src/f.cpp:8: negated: made::clamp: a > kLimit && a != 100 -> !(a > kLimit && a != 100)"
expect_found "src/f.cpp:9: left out: made::clamp: a = kLimit; -> nothing"
expect_found "src/f.cpp:12: arithmetic: made::clamp: a + 1 -> (a) - (1)"
expect_found "src/f.cpp:16: negated: Shape::round: corners == 0 -> !(corners == 0)"
expect_found "src/f.h:4: arithmetic: made::twice: a * 2 -> (a) + (2)"
expect_found "src/f.h:4: number: made::twice: 2 -> 2 + 1"
# What the compiler computes has no switch.
expect_not_found "8 -> 8 + 1"
expect_not_found "3 + 1"
expect_not_found "50"
expect_not_found "60"
expect_not_found "70"
expect_not_found "left_out"
[ "$(run --list src/f.h | grep -c .)" = "$(grep -c '^src/f.h' <<< "$found")" ] || { echo "a path does not choose"; exit 1; }

# They compile together, and are judged one at a time. The quick test does not look at 100 nor between, the slower one at 100.
judged=$(run --goal 50) || { printf 'not judged:\n%s\n' "$judged"; exit 1; }
expect_judged() { grep -qF -- "$1" <<< "$judged" || { printf 'no line: %s\nin:\n%s\n' "$1" "$judged"; exit 1; }; }
expect_judged "not mutated: src/left_out.*: nobody calls it"
expect_judged "seed 1: "
expect_judged "noticed  src/f.h:4: arithmetic: made::twice: a * 2 -> (a) + (2)  [test_f"
expect_judged "noticed  src/f.cpp:16: negated: Shape::round: corners == 0 -> !(corners == 0)  [test_f"
expect_judged "LEFT     src/f.cpp:8: half: made::clamp: a > kLimit && a != 100 -> !!(a > kLimit)"
expect_judged "noticed  src/f.cpp:8: half: made::clamp: a > kLimit && a != 100 -> !!(a > kLimit)  [test_g"
expect_judged "LEFT     src/f.cpp:8: comparison: made::clamp: a > kLimit -> (a) >= (kLimit)"
expect_judged "SURVIVES src/f.cpp:8: comparison: made::clamp: a > kLimit -> (a) >= (kLimit)"
expect_judged "survivor: src/f.cpp:8: comparison: made::clamp: a > kLimit -> (a) >= (kLimit)"
expect_judged "test_always fails without any mutant"
expect_judged "test_once judges no more"
for busy in always by_turns once; do
  if grep -qF "[test_$busy" <<< "$judged"; then printf 'test_%s judged:\n%s\n' $busy "$judged"; exit 1; fi
done
# Both shares, of all that were drawn. Only the quick tests have a bound.
sum() { sed -nE 's/^mutants: ([0-9]+) of ([0-9]+) noticed, by the quick tests ([0-9.]+)%, with the slower ones ([0-9.]+)%, seed 1; .* have to notice 50%, .* is 90%$/\1 \2 \3 \4/p' <<< "$judged"; }
read -r noticed all quick slower <<< "$(sum)" || { echo "no sum"; exit 1; }
drawn=$(grep -c . <<< "$found")
survivors=$(grep -c '^survivor' <<< "$judged")
left=$(grep -c '^LEFT' <<< "$judged")
[ "$all" = "$drawn" ] && [ "$noticed" = $((all - survivors)) ] && [ "$survivors" -lt "$left" ] &&
  [ "$quick" = "$(awk "BEGIN { printf \"%.1f\", 100 * ($all - $left) / $all }")" ] &&
  [ "$slower" = "$(awk "BEGIN { printf \"%.1f\", 100 * $noticed / $all }")" ] ||
  { printf 'wrong sums: %s of %s drawn, %s left, %s survivors:\n%s\n' "$(sum)" "$drawn" "$left" "$survivors" "$judged"; exit 1; }
# What is known is not looked at again, and the quick tests can be taken alone.
again=$(run --goal 50)
[ "$(tail -n 1 <<< "$again")" = "$(tail -n 1 <<< "$judged")" ] || { printf 'another sum:\n%s\n' "$again"; exit 1; }
if run --goal "$(awk "BEGIN { print $quick + 0.1 }")" > "$work/said"; then echo "the slower tests met the bound of the quick ones"; exit 1; fi
run --quick --goal 50 > "$work/said" || { cat "$work/said"; exit 1; }
grep -qF "by the quick tests $quick%, with the slower ones $quick%" "$work/said" || { cat "$work/said"; exit 1; }
if run --goal 100 > "$work/said"; then echo "a survivor met a goal of 100 %"; exit 1; fi

# A file that nobody has said anything of is an error.
echo 'int unheard_of() { return 1; }' > "$tree/src/unheard_of.cpp"
sed -i 's/^src  /src\/f/' "$tree/tests/mutants/tests.list"
if run --list > "$work/said" 2>&1; then echo "a file without tests is passed over"; exit 1; fi
grep -qF "neither tests.list nor left_out.list has src/unheard_of.cpp" "$work/said"
rm "$tree/src/unheard_of.cpp"

# What is known to be equivalent is not drawn.
echo 'src/f.cpp: made::clamp: a > kLimit -> (a) >= (kLimit)  # at the limit both give the limit' > "$tree/tests/mutants/equivalent.list"
found=$(run --list); expect_not_found "(a) >= (kLimit)"

# A test that fails by itself judges nothing.
sed -i 's/== 5/== 6/' "$tree/tests/test_f.cpp"
if run > "$work/said"; then echo "a failing test judged"; exit 1; fi
grep -qF "test_f fails without any mutant" "$work/said"
echo "all as expected"
