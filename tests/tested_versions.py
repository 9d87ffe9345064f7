#!/usr/bin/python3
"""The table of tested versions: which kernels and runtimes the tests have seen, and how many stacks were whole.

tested_versions.py                    fails unless docs/reference/tested-versions.md is what tests/tested_versions.tsv gives
tested_versions.py --renew [RESULTS]  takes the results of ./test (build/results) into the .tsv, if given, and writes the page

Tests record a property for each version (tests/support/tested_version.h): "tested/RUNTIME/VERSION/WAY", whose value is
"MACHINE SAMPLES WHOLE WRONG". Ways of one version are added up. tests/vm/test_kernels.cpp records "kernels_row".
A failed case does not count. A version that RESULTS does not have keeps its row and its date. Delete by hand the row of a
version that is no longer tested.
"""
import datetime
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/tested_versions.tsv"
PAGE = ROOT / "docs/reference/tested-versions.md"
BEGIN, END = "<!-- filled by tests/tested_versions.py -->", "<!-- end of what is filled -->"
COLUMNS = ("kind", "what", "version", "machine", "samples", "whole", "wrong", "date")
MACHINES = {"x86_64": "x86-64", "aarch64": "AArch64"}


def version_key(version):
    return [int(part) if part.isdigit() else 0 for part in version.split(".")]


def order(row):
    return row["kind"], row["what"].lower(), version_key(row["version"]), row["machine"] != "x86-64", row["machine"]


def sum_of(a, b):
    """Counts as text; "-" is a count that nobody made."""
    return b if a == "-" else a if b == "-" else str(int(a) + int(b))


def read_property(name, value):
    """A row without its date, or None."""
    if name.startswith("tested/"):
        _, what, version, _ = name.split("/", 3)
        machine, samples, whole, wrong = value.split()
        kind = "runtime"
    elif name == "kernels_row":
        release, machine, test, samples, share, wrong, *_ = value.split()
        if test not in ("KnownStacks", "StandardLibrary") or share == "-":
            return None  # others have programs in them that the test does not know
        kind, what, version = "kernel", "Linux", ".".join(release.split("-")[0].split(".")[:2])
        whole = str(round(int(samples) * float(share.rstrip("%")) / 100))
    else:
        return None
    return dict(kind=kind, what=what, version=version or "unknown", machine=MACHINES.get(machine, machine),
                samples=samples, whole=whole, wrong=wrong)


def read_results(results):
    """The rows of a run, by what they are of."""
    files = {}
    for path in sorted(results.rglob("*.xml"), key=lambda path: (path.parent.name == "again", str(path))):
        if path.name != "ctest.xml":  # what ran again stands for what it was before
            files[(path.parent.parent if path.parent.name == "again" else path.parent, path.name)] = path
    rows = {}
    for path in files.values():
        root = ElementTree.parse(path).getroot()
        date = (root.get("timestamp") or datetime.datetime.now(datetime.timezone.utc).isoformat())[:10]
        for case in root.iter("testcase"):
            if case.find("failure") is not None:
                continue
            for found in case.iter("property"):
                row = read_property(found.get("name"), found.get("value"))
                if row is None:
                    continue
                row["date"] = date
                key = tuple(row[column] for column in COLUMNS[:4])
                if key in rows:
                    for count in ("samples", "whole", "wrong"):
                        row[count] = sum_of(rows[key][count], row[count])
                rows[key] = row
    return rows


def read_data():
    rows = {}
    for line in DATA.read_text().splitlines() if DATA.exists() else []:
        if line and not line.startswith("#"):
            row = dict(zip(COLUMNS, line.split("\t"), strict=True))
            rows[tuple(row[column] for column in COLUMNS[:4])] = row
    return rows


def write_data(rows):
    lines = ["# The results of tests, for docs/reference/tested-versions.md: tests/tested_versions.py --renew writes this.",
             "# " + "\t".join(COLUMNS)]
    lines += ["\t".join(row[column] for column in COLUMNS) for row in sorted(rows.values(), key=order)]
    DATA.write_text("\n".join(lines) + "\n")


def table(rows):
    lines = ["| kernel or runtime | version | machine | whole | of samples | wrong | tested on |", "|---|---|---|---|---|---|---|"]
    for row in sorted(rows.values(), key=order):
        share = 100 * int(row["whole"]) / max(int(row["samples"]), 1)
        wrong = "" if row["wrong"] == "-" else row["wrong"]
        lines.append(f"| {row['what']} | {row['version']} | {row['machine']} | {share:.2f}% | {int(row['samples']):,} | {wrong} | {row['date']} |")
    return "\n".join(lines)


def filled(page, rows):
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        sys.exit(f"{PAGE}: the lines '{BEGIN}' and '{END}' must each be there once")
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table(rows)}\n\n{END}{rest.split(END)[1]}"


def main(arguments):
    if arguments[:1] == ["--renew"] and len(arguments) <= 2:
        rows = read_data()
        if len(arguments) == 2:
            found = read_results(pathlib.Path(arguments[1]))
            if not found:
                sys.exit(f"{arguments[1]}: no test has recorded a version there")
            rows.update(found)
            write_data(rows)
            print(f"{len(found)} of {len(rows)} rows are of this run")
        PAGE.write_text(filled(PAGE.read_text(), rows))
        return 0
    if arguments:
        sys.exit(__doc__)
    page = PAGE.read_text()
    if filled(page, read_data()) == page:
        return 0
    print(f"{PAGE} is not what {DATA} gives: run tests/tested_versions.py --renew")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
