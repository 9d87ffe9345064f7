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
cat > "$tree/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.20)
project(made CXX)
set(CMAKE_CXX_STANDARD 20)
enable_testing()
add_executable(test_f src/f.cpp tests/test_f.cpp)
target_include_directories(test_f PRIVATE src)
add_test(NAME test_f COMMAND test_f)
CMAKE
cat > "$tree/tests/mutants/tests.list" <<'LIST'
# a prefix, and who judges
src       test_f
LIST
: > "$tree/tests/mutants/equivalent.list"
echo 'src/left_out.*  # nobody calls it' > "$tree/tests/mutants/left_out.list"
echo 'int left_out() { return 1 + 1; }' > "$tree/src/left_out.cpp"
printf '[{"directory": "%s", "file": "%s/src/f.cpp", "command": "c++ -I%s/src -std=c++20 -o f.o -c %s/src/f.cpp"}]\n' "$tree" "$tree" "$tree" "$tree" \
  > "$tree/build/release/compile_commands.json"
run() { /usr/bin/python3 "$here/mutants/run.py" --root "$tree" --seed 1 --sample 100 "$@"; }

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

# They compile together, and are judged one at a time. The test does not look at 100 nor between.
judged=$(run --goal 50) || { printf 'not judged:\n%s\n' "$judged"; exit 1; }
expect_judged() { grep -qF -- "$1" <<< "$judged" || { printf 'no line: %s\nin:\n%s\n' "$1" "$judged"; exit 1; }; }
expect_judged "not mutated: src/left_out.*: nobody calls it"
expect_judged "seed 1: "
expect_judged "noticed  src/f.h:4: arithmetic: made::twice: a * 2 -> (a) + (2)  [test_f"
expect_judged "noticed  src/f.cpp:16: negated: Shape::round: corners == 0 -> !(corners == 0)  [test_f"
expect_judged "SURVIVES src/f.cpp:8: comparison: made::clamp: a > kLimit -> (a) >= (kLimit)"
expect_judged "survivor: src/f.cpp:8: comparison: made::clamp: a > kLimit -> (a) >= (kLimit)"
grep -qE "^mutants: [0-9]+ of [0-9]+ noticed \([0-9.]+%\), seed 1; at least 50% have to be, and the goal is 90%$" <<< "$judged" || { echo "no sum"; exit 1; }
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
