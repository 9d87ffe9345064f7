#!/usr/bin/env bash
# Which lines of the library the unit tests run: a figure for each folder, and a total. Builds and runs the preset coverage, which takes
# about as long as the sanitizers' (minutes), and needs gcovr. With a regular expression, only the tests whose names match.
# usage: tests/coverage.sh [REGEX]
set -euo pipefail
cd "$(dirname "$0")/.."
. cmake/setup.sh
command -v gcovr > /dev/null || { echo "gcovr is not installed" >&2; exit 1; }
mkdir -p build
windlass_build coverage
find build/coverage -name '*.gcda' -delete
ctest --preset coverage -L unit ${1:+-R "$1"} || echo "some tests failed: the figures count what they ran"
# gcovr 5 asserts that a function of one name begins on one line everywhere.
PYTHONOPTIMIZE=1 gcovr --root . --filter src/ --filter include/ --filter bpf/ --json-summary-pretty --json-summary build/coverage/summary.json build/coverage
/usr/bin/python3 - build/coverage/summary.json <<'PYTHON'
import collections, json, os, sys

folders = collections.defaultdict(lambda: [0, 0])
for file in json.load(open(sys.argv[1]))["files"]:
    for folder in (os.path.dirname(file["filename"]), "total"):
        folders[folder][0] += file["line_covered"]
        folders[folder][1] += file["line_total"]
total = folders.pop("total", [0, 0])
for name, (covered, lines) in [*sorted(folders.items()), ("total", total)]:
    print(f"{name:<24} {100 * covered / max(lines, 1):5.1f} %  of {lines:6} lines")
PYTHON
