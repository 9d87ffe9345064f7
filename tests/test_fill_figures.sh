#!/usr/bin/env bash
# fill_figures.py on a copy of its sources: a figure that is not its source's is found, and so is one that is typed by hand.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for file in tests/fill_figures.py tests/tested_versions.tsv docs/figures/benchmarks.md bpf/windlass_event_layout.h \
  src/profiler/doctor/system_probe.cpp; do
  mkdir -p "$(dirname "$file")"
  cp "$here/../$file" "$file"
done

# expect STATUS TEXT
expect() {
  local status=0
  tests/fill_figures.py > output 2>&1 || status=$?
  if [ "$status" != "$1" ] || ! grep -qF -- "$2" output; then
    printf 'line %s: expected status %s and "%s"; status %s and\n' "${BASH_LINENO[0]}" "$1" "$2" "$status"
    cat output
    exit 1
  fi
}

# Every figure is filled, once and again, and what stands around them stays.
for name in $(grep -oP '^    "\K[a-z-]+(?=": )' tests/fill_figures.py); do
  printf 'Here is\nit: <!-- %s -->?<!-- / -->, there.\n' "$name"
done > README.md
expect 1 "'?' is not the figure bytes-a-row: run tests/fill_figures.py --write"
tests/fill_figures.py --write
if grep -qF '?' README.md; then cat README.md; exit 1; fi
expect 0 "figures of README.md are as their sources say"
cp README.md filled
tests/fill_figures.py --write
cmp README.md filled

# The source changes, and the figure has to.
sed -i 's/\(bytes of tables: \)[0-9.]*/\19.876/' docs/figures/benchmarks.md
expect 1 "is not the figure bytes-a-row"
tests/fill_figures.py --write
grep -qF '9.9<!-- / -->' README.md

# Typed by hand: in prose, not in code, versions or names.
printf 'Version 5.15, `99%%`, x86-64.\n\n```\n12 ns\n```\n' >> README.md
expect 0 "figures of README.md are as their sources say"
for text in '99.9%' '33 ns' '8,192 frames' '3 MB' '4.2 times'; do
  cp README.md before
  echo "It is $text." >> README.md
  expect 1 "'$text' is written by hand"
  mv before README.md
done

# A comment at the beginning of a line makes a block of its own.
cp README.md before
printf 'Text,\n  <!-- clang -->33 ns<!-- / -->.\n' >> README.md
expect 1 "a comment begins this line"
mv before README.md

# A page of figures without its machine, date or command.
page=made-up.md
for word in Machine Date 'Made by'; do
  printf -- '- Machine: m, 2026-11-26\n- Date: today\n- Made by: `make`\n' | sed "/$word/d" > docs/figures/$page
  expect 1 "docs/figures/$page: no list item says '$word: ...'"
done
printf -- '- Machine: m\n- Date: today\n- Made by: `make`\n' > docs/figures/$page
expect 1 "docs/figures/$page: there is no date"
rm docs/figures/$page

# A figure without a source, and a source that has lost its place.
printf '<!-- no-such -->1<!-- / -->\n' >> README.md
expect 1 "'1' is not the figure no-such"
sed -i '/no-such/d; /raw row/d' README.md docs/figures/benchmarks.md
expect 1 "nothing there is like"
echo "all as expected"
