#!/usr/bin/env bash
# tested_versions.py on a made-up tree and made-up results.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p tests docs/reference results/{again,aarch64}
cp "$here/tested_versions.py" tests/
page=docs/reference/tested-versions.md
printf 'Before.\n\n<!-- filled by tests/tested_versions.py -->\n<!-- end of what is filled -->\n\nBehind.\n' > "$page"

# gtest FILE CASE...: a program's results
gtest() {
  echo "<testsuites timestamp=\"2026-11-26T05:00:00\"><testsuite name=\"S\">${*:2}</testsuite></testsuites>" > "results/$1"
}
# case_of ELEMENT NAME VALUE...: a case with properties; ELEMENT: what else is in it
case_of() {
  printf '<testcase name="C" status="run" classname="S">%s<properties>' "$1"
  shift
  while [ $# -gt 0 ]; do printf '<property name="%s" value="%s"/>' "$1" "$2"; shift 2; done
  printf '</properties></testcase>'
}
# has TEXT..., lacks TEXT...: of the page
has() { for text; do grep -qF -- "$text" "$page" || { printf 'line %s: no "%s" in\n' "${BASH_LINENO[0]}" "$text"; cat "$page"; exit 1; }; done; }
lacks() { for text; do ! grep -qF -- "$text" "$page" || { printf 'line %s: "%s" in\n' "${BASH_LINENO[0]}" "$text"; cat "$page"; exit 1; }; done; }
renew() { tests/tested_versions.py --renew results > output; }
# refuses TEXT COMMAND...: the command fails, and says so
refuses() {
  if "${@:2}" > output 2>&1 || ! grep -qF -- "$1" output; then printf 'line %s: no "%s" in\n' "${BASH_LINENO[0]}" "$1"; cat output; exit 1; fi
}

# Ways are added up. Wrong ones that nobody counted are no 0. The page is then what the data gives.
gtest a.xml "$(case_of '' 'tested/Java/17.0.15/-Xint' 'x86_64 1000 999 0' 'tested/Java/17.0.15/C1' 'x86_64 1000 1000 -')" \
  "$(case_of '' 'tested/Mono/6.8/a/b' 'x86_64 10 9 -' other 5)"
renew
has Before. Behind. '| Java | 17.0.15 | x86-64 | 99.95% | 2,000 | 0 | 2026-11-26 |' '| Mono | 6.8 | x86-64 | 90.00% | 10 |  | 2026-11-26 |'
tests/tested_versions.py

# Kernels by release, without other programs' samples.
gtest a.xml "$(case_of '' kernels_row '6.1.0-40-cloud-arm64 aarch64 KnownStacks 200 99.50% 0 0 7')" \
  "$(case_of '' kernels_row '6.1.0-40-cloud-arm64 aarch64 WholeMachine 900 50.00% - 0 0')"
renew
has '| Linux | 6.1 | AArch64 | 99.50% | 200 | 0 |'

# A version that this run does not have stays; what it has again is replaced, not added.
has '| Java | 17.0.15'
renew
has '| 99.50% | 200 |'

# Failed cases do not count, but for what ran again.
gtest a.xml "$(case_of '<failure message="no"/>' 'tested/Java/25.0.3/C1' 'x86_64 9 9 9')" "$(case_of '' 'tested/Java/17.0.15/C1' 'x86_64 5 5 0')"
renew
lacks 25.0.3
gtest again/a.xml "$(case_of '' 'tested/Java/25.0.3/C1' 'x86_64 9 9 0')"
renew
has '| Java | 25.0.3 | x86-64 | 100.00% | 9 | 0 |' '| Java | 17.0.15 | x86-64 | 100.00% | 5 | 0 |'

# A page that is not what the data gives, or that has no place for the table, and results without a version.
sed -i 's/90.00%/99.00%/' "$page"
refuses 'run tests/tested_versions.py --renew' tests/tested_versions.py
tests/tested_versions.py --renew
tests/tested_versions.py
rm results/*.xml results/again/*.xml
refuses 'no test has recorded a version' tests/tested_versions.py --renew results
sed -i '/filled/d' "$page"
refuses 'must each be there once' tests/tested_versions.py
echo "all as expected"
