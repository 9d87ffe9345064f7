#!/usr/bin/python3
"""Figures of the README, taken from the results of tests and benchmarks.

fill_figures.py            fails unless each figure of README.md is what its source says, and none is written by hand
fill_figures.py --write    fills them

Pages of docs/figures must say in list items "Machine", "Date" and "Made by", and have a date.

A figure stands between two comments: <!-- bytes-a-row -->2.4<!-- / -->. FIGURES says where each comes from.
"""
import csv
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = "README.md"
BENCHMARKS = "docs/figures/benchmarks.md"
TESTED = "tests/tested_versions.tsv"

FIGURE = re.compile(r"<!-- ([a-z][a-z-]*) -->(.*?)<!-- / -->", re.S)
# A number with a unit, or a share: a measurement, where it is prose.
MEASURED = re.compile(r"\d[\d.,]*\s?(?:%|[nuµm]?s\b|[KMG]i?B\b|bytes|times|frames|samples|rows)")
NO_PROSE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.S)


def found(file, pattern):
    """The groups of `pattern` in a file, as text."""
    match = re.search(pattern, (ROOT / file).read_text(), re.S)
    if not match:
        sys.exit(f"{ROOT / file}: nothing there is like {pattern}")
    return match.groups()


RUNTIMES = ("HotSpot", "node (V8)", ".NET (CoreCLR)", "Go", "CPython", "Ruby", "Mono", "Erlang (BEAM)")  # that the README names


def tested():
    """Whole samples and all samples of the tests of these runtimes."""
    lines = [line for line in (ROOT / TESTED).read_text().splitlines() if not line.startswith("#")]
    rows = [row for row in csv.reader(lines, delimiter="\t") if row[1] in RUNTIMES]
    if missing := set(RUNTIMES) - {row[1] for row in rows}:
        sys.exit(f"{ROOT / TESTED}: there is no row of {', '.join(sorted(missing))}")
    return sum(int(row[5]) for row in rows), sum(int(row[4]) for row in rows)


def recorder(name, column):
    """Of the table of clang, `windlass record` beside `perf record`: 1 is bytes, 3 the share of complete stacks."""
    row, = found(BENCHMARKS, rf"\*\*clang\*\*.*?\n\| {re.escape(name)} (\|[^\n]*)")
    return row.split("|")[column].strip()


def megabytes(text):
    return f"{int(text) / 1e6:.1f}"


def share(whole, samples):
    return f"{100 * whole / samples:.1f}%"


def frame(workload, name):
    """Nanoseconds of the kernel's time a frame, by bench_kernel."""
    nanoseconds, = found(BENCHMARKS, rf"\n[^\n]*{workload}: \d+ rows, table[^\n]*(?:\n[^\n]+)*?\n{name} [^\n]*? ([\d.]+) ns/frame")
    return f"{float(nanoseconds):.0f} ns"


def bytes_a_row():
    count, = found(BENCHMARKS, r"bytes of tables: ([\d.]+) a raw row")
    return f"{float(count):.1f}"


def most_frames():
    count, = found("bpf/windlass_event_layout.h", r"WL_MAX_USER_FRAMES (\d+)u")
    return f"{int(count):,}"


def oldest_linux():
    return ".".join(found("src/profiler/doctor/system_probe.cpp", r"kOldest\{(\d+), (\d+)\}"))


FIGURES = {
    "bytes-a-row": bytes_a_row,
    "recursion": lambda: frame("kernel_recursion", "windlass"),
    "recursion-by-bisection": lambda: frame("kernel_recursion", "peers"),
    "clang": lambda: frame("clang", "windlass"),
    "clang-by-bisection": lambda: frame("clang", "peers"),
    "megabytes": lambda: megabytes(recorder("windlass", 1)),
    "whole": lambda: recorder("windlass", 3),
    "megabytes-of-perf": lambda: megabytes(recorder("perf dwarf,8192", 1)),
    "whole-of-perf": lambda: recorder("perf dwarf,8192", 3),
    "most-frames": most_frames,
    "oldest-linux": oldest_linux,
    "whole-runtimes": lambda: share(*tested()),
    "samples-runtimes": lambda: f"{tested()[1]:,}",
}


def filled(text):
    unknown = {name for name, _ in FIGURE.findall(text)} - FIGURES.keys()
    if unknown:
        sys.exit(f"{PAGE}: FIGURES of {sys.argv[0]} has no {', '.join(sorted(unknown))}")
    return FIGURE.sub(lambda match: f"<!-- {match[1]} -->{FIGURES[match[1]]()}<!-- / -->", text)


def by_hand(text):
    """(line, figure) of each measurement in prose that no source gives."""
    lines = lambda match: "\n" * match.group().count("\n")
    prose = NO_PROSE.sub(lines, FIGURE.sub(lines, text))
    for number, line in enumerate(prose.split("\n"), 1):
        for match in MEASURED.finditer(line):
            yield number, match.group()


def undated():
    """What the pages of figures do not say."""
    for page in sorted((ROOT / "docs/figures").glob("*.md")):
        text = page.read_text()
        for word in ("Machine", "[Dd]ate", "Made by"):
            if not re.search(rf"^- (Machine and )?{word}[^\n]*: ", text, re.M):
                yield f"{page.relative_to(ROOT)}: no list item says '{word.replace('[Dd]', 'D')}: ...'"
        if not re.search(r"\b20\d\d-\d\d-\d\d\b", text):
            yield f"{page.relative_to(ROOT)}: there is no date"


def main(arguments):
    text = (ROOT / PAGE).read_text()
    if arguments == ["--write"]:
        (ROOT / PAGE).write_text(filled(text))
        return 0
    if arguments:
        sys.exit(__doc__)
    errors = [f"{PAGE}:{line}: '{figure}' is written by hand: give it a name and a source in FIGURES of tests/fill_figures.py"
              for line, figure in by_hand(text)]
    for match in re.finditer(r"^[ \t]*<!-- [a-z-]+ -->.*", text, re.M):
        errors.append(f"{PAGE}: a comment begins this line, which ends the paragraph (CommonMark 4.6): {match.group().strip()}")
    for name, value in FIGURE.findall(text):
        if name not in FIGURES or value != FIGURES[name]():
            errors.append(f"{PAGE}: '{value}' is not the figure {name}: run tests/fill_figures.py --write")
    errors += undated()
    print("\n".join(errors) or f"{len(FIGURE.findall(text))} figures of {PAGE} are as their sources say")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
