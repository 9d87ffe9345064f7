#!/usr/bin/python3
"""Are the keys of the command's JSON those of src/cli/json_keys.tsv, and are they on the page of the reference?

json_keys.py sources ROOT: each key that the sources print is in the table, and each of the table is in the sources. The
page is what `fill` makes.
json_keys.py fill ROOT: makes the page of the table.
json_keys.py printed ROOT COMMAND FILE...: each key that COMMAND prints is in the table: of `dump` and `rows` of each FILE,
of `walk` of a process, and of `doctor`.
"""
import json
import pathlib
import re
import subprocess
import sys

TABLE, PAGE = "src/cli/json_keys.tsv", "docs/reference/json-keys.md"
# The section of the table, by the first of these that the name of a source begins with.
SECTIONS = {"dump_sframe": "dump of SFrame", "dump_winx64": "dump of PE x64", "dump_winarm64": "dump of PE ARM64",
            "dump": "dump of DWARF", "rows": "rows", "walk": "walk", "doctor": "doctor", "input": "dump, rows", "serve": "serve", "symbols_run": "symbols list",
            "json": "report", "diff_json": "report of --diff", "annotation_json": "report of --annotate"}
SCHEMAS = [("report --json", "report"), ("report --diff --json", "report-diff"),
           ("report --annotate FUNCTION --json", "report-annotate"), ("walk --json", "walk")]
FORMATS = {"dwarf": "dump of DWARF", "sframe": "dump of SFrame", "winx64": "dump of PE x64", "winarm64": "dump of PE ARM64"}
BY_REGISTER = {"registers", "regs"}  # the keys below are names of registers
KEY = re.compile(r'\\"(\w+)\\":|\b(?:key|member|member_or_null|json_calls)\("(\w+)"')


def table_of(root):
    """[(section, key, value, meaning)]."""
    lines = [line for line in (root / TABLE).read_text().splitlines() if line and not line.startswith("#")]
    rows = [tuple(line.split("\t")) for line in lines]
    wrong = [f"{TABLE}: not four columns: {' '.join(row)}" for row in rows if len(row) != 4]
    seen = [row[:2] for row in rows]
    wrong += [f"{TABLE}: twice: {' '.join(pair)}" for pair in sorted(set(seen)) if seen.count(pair) > 1]
    return rows, wrong


def section_of(path):
    return next((section for name, section in SECTIONS.items() if path.stem.startswith(name)), None)


def printed_by_sources(root):
    """{section: keys}, and what is wrong."""
    keys, wrong = {}, []
    for path in [*sorted(root.glob("src/cli/**/*.cpp")), *sorted(root.glob("src/profiler/*/*json.cpp"))]:
        found = {a or b for a, b in KEY.findall(path.read_text())}
        if found and section_of(path) is None:
            wrong.append(f"{path.relative_to(root)} prints {sorted(found)[0]}, and is of no section")
        elif found:
            keys.setdefault(section_of(path), set()).update(found)
    return keys, wrong


def page_of(rows):
    text = ["# Keys of JSON", "",
            "Commands with `--json` print an object a line. Numbers are decimal. A key without a value is left out, unless the",
            "table has `null`.", "",
            "For example, `windlass walk --json 1234 | jq -r '.frames[].function'` prints the functions of all frames.", "",
            "The lines of four outputs have a JSON Schema (draft 2020-12). `cmake --install` puts the files into",
            "`share/doc/windlass/schema`. The `$id` of a schema ends with the version of its keys. Validate with any tool, for",
            "example with `check-jsonschema`:", "",
            "| output | schema |", "|---|---|",
            *(f"| `windlass {output}` | [{name}.json](../schema/{name}.json) |" for output, name in SCHEMAS), ""]
    for section in dict.fromkeys(row[0] for row in rows):
        names = " and ".join(f"`windlass {name}`" for name in section.split(" of ")[0].split(", "))
        of = f", {section.split(' of ')[1]}" if " of " in section else ""
        text += [f"## {names}{of}", "", "| key | value | meaning |", "|---|---|---|"]
        text += [f"| `{key}` | {value} | {meaning} |" for of, key, value, meaning in rows if of == section]
        text.append("")
    return "\n".join(text)


def check_sources(root):
    rows, wrong = table_of(root)
    keys, more = printed_by_sources(root)
    wrong += more
    known = {}
    for section, key, *_ in rows:
        known.setdefault(section, set()).add(key)
    for section in sorted(set(keys) | set(known)):
        printed, listed = keys.get(section, set()), known.get(section, set())
        wrong += [f"{section}: {key} is printed, and not in {TABLE}" for key in sorted(printed - listed)]
        wrong += [f"{section}: {key} is in {TABLE}, and not printed" for key in sorted(listed - printed)]
    page = root / PAGE
    if not wrong and (not page.exists() or page.read_text() != page_of(rows)):
        wrong.append(f"{PAGE} is not what {TABLE} makes: tests/json_keys.py fill .")
    return wrong, f"{len(rows)} keys in {len(known)} sections"


def keys_in(value, to):
    if isinstance(value, dict):
        for key, inner in value.items():
            to.add(key)
            keys_in(list(inner.values()) if key in BY_REGISTER and isinstance(inner, dict) else inner, to)
    elif isinstance(value, list):
        for inner in value:
            keys_in(inner, to)


def check_printed(root, command, files):
    rows, wrong = table_of(root)
    known = {}
    for section, key, *_ in rows:
        for name in section.split(", "):
            known.setdefault(name, set()).add(key)
    sleeper = subprocess.Popen(["sleep", "60"])
    runs = [("dump", ["dump", "--json", file]) for file in files] + [("rows", ["rows", "--json", file]) for file in files]
    runs += [("walk", ["walk", "--json", "-vv", "--arguments", str(sleeper.pid)]), ("doctor", ["doctor", "--json"])]
    objects, met = 0, {}
    for name, arguments in runs:
        done = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=120)
        for line in filter(None, done.stdout.splitlines()):
            record, keys = json.loads(line), set()
            keys_in(record, keys)
            objects += 1
            section = FORMATS[record["format"]] if "format" in record else name
            met.setdefault(section, set()).update(keys)
    sleeper.kill()
    sleeper.wait()
    for section, keys in sorted(met.items()):
        listed = known.get(section, set()) | (known.get("dump", set()) if section.startswith("dump") else set())
        wrong += [f"{section}: {key} is printed, and not in {TABLE}" for key in sorted(keys - listed)]
    wrong += [f"{name} printed nothing" for name in ("rows", "walk", "doctor", "dump of DWARF") if name not in met]
    return wrong, f"{objects} objects with {sum(map(len, met.values()))} keys in {len(met)} sections"


def main():
    what, root = sys.argv[1], pathlib.Path(sys.argv[2])
    if what == "fill":
        (root / PAGE).write_text(page_of(table_of(root)[0]))
        return 0
    wrong, seen = check_sources(root) if what == "sources" else check_printed(root, sys.argv[3], sys.argv[4:])
    print("\n".join([*wrong, f"{seen}, {len(wrong)} errors"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
