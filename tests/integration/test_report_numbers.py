#!/usr/bin/python3
"""Has the terminal's report the numbers of `report --json`?  test_report_numbers.py COMMAND

Five real profiles are recorded. From the samples of the JSON the sums are made anew. The lines that must follow from them,
with all their numbers, are compared with the report: the header, labels, functions, the call tree, processes.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import five_profiles

command, errors, counts = sys.argv[1], [], {}
WIDTH = 1000  # columns: wide enough for nearly all names
LONG = 300  # names above are shortened


def lines_of(*arguments):
    done = subprocess.run([command, "report", *arguments], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "COLUMNS": str(WIDTH), "NO_COLOR": "1"})
    if done.returncode:
        errors.append(f"report {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.splitlines()


def amount(number, unit):
    steps = {"nanoseconds": [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")],
             "bytes": [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")]}.get(unit)
    if not steps:
        return f"{number:,}"
    least, text = next((step for step in steps if number >= step[0]), steps[-1])
    part = number / least
    return f"{part:.{0 if least == 1 else 2 if part < 9.995 else 1 if part < 99.95 else 0}f} {text}"


def as_shown(name):
    """None: the terminal shows it in another form."""
    return name if len(name) < LONG and name.isascii() and name.isprintable() else None


class Node:
    def __init__(self, name=""):
        self.name, self.self, self.total, self.children = name, 0, 0, {}

    def below(self):
        return sorted(self.children.values(), key=lambda node: (-node.total, node.name.encode()))


class Facts:
    """What the JSON says of one value."""

    def __init__(self, file, value):
        lines = [json.loads(line) for line in lines_of("--json", *(["--value", value] if value else []), file)]

        def of(kind):
            return [line for line in lines if line["type"] == kind]

        self.head = of("profile")[0]
        self.functions, self.modules = {line["id"]: line for line in of("function")}, {line["id"]: line for line in of("module")}
        self.order = [line for line in of("function") if line["total"]]
        locations = {line["id"]: line["lines"] for line in of("location")}
        name = self.head["value"]
        counts_it = self.head["unit"] == "count" and any(event["counted"] == name for event in self.head["events"])
        self.event = next(event for event in self.head["events"] if name == event["counted" if counts_it else "name"])
        self.samples = []  # (weight, sample)
        self.tree = Node()
        for sample in of("sample"):
            weight = sample["count" if counts_it else "value"]
            if sample["event"] != self.event["name"] or not weight:
                continue
            self.samples.append((weight, sample))
            path = [("comm", sample["comm"])] + [("end", f"[truncated: {sample['truncated']}]")] * bool(sample["truncated"])
            for location in reversed(sample["locations"]):
                path += [(line["function"], self.functions[line["function"]]["name"]) for line in reversed(locations[location])]
            node = self.tree
            node.total += weight
            for key, text in path:
                node = node.children.setdefault((key, text), Node(text))
                node.total += weight
            node.self += weight
        self.counts_it = counts_it

    def sum_by(self, keys_of):
        sums = {}
        for weight, sample in self.samples:
            for key in keys_of(sample):
                sums[key] = sums.get(key, 0) + weight
        return sums

    def share(self, number):
        return 100 * (number / self.head["samples"])

    def percent(self, number):
        return f"{self.share(number):6.2f}%"

    def amount(self, number):
        return amount(number, self.head["unit"])


def summary(facts):
    head, event, total = facts.head, facts.event, facts.head["samples"]
    period = event["period"] if event["unit"] == "nanoseconds" else 0
    text = f"{facts.amount(total)} {'' if facts.counts_it else 'of '}{head['value']}"
    if period:
        text += f" at {1e9 / period:.0f} Hz"
    if head["duration_ns"]:
        text += f" in {head['duration_ns'] / 1e9:.1f} s"
    if period and facts.counts_it:
        text += f" ({total / (1e9 / period):.1f} s of {'CPU' if event['name'] == 'cpu' else event['name']})"
    whole = total - head["truncated"] - head["chained"]
    part = 100 if whole == total else min(100 * whole / total, 99.99)
    text += f"; {part:.2f}% of {'the stacks whole' if facts.counts_it else 'it with whole stacks'}"
    if head["chained"]:
        text += f", {facts.share(head['chained']):.2f}% chained by frame pointers"
    return f"{text}; {head['lost']:,} lost"


def check(kind, wanted, got, where):
    counts[kind] = counts.get(kind, 0) + 1
    if wanted != got:
        errors.append(f"{where}: {kind}: the JSON gives {wanted!r}, the report has {got!r}")


def check_header(facts, lines, file, where):
    check("header", summary(facts), lines[0], where)
    check("header", (facts.tree.total, sum(n for n, s in facts.samples if s["truncated"])),
          (facts.head["samples"], facts.head["truncated"]), where)
    by_end = facts.sum_by(lambda sample: [sample["truncated"]] if sample["truncated"] else [])
    shown = [line for line in lines if line.startswith("  truncated ")]
    wanted = [f"  truncated {end}: {facts.amount(n)} ({facts.share(n):.2f}%)" for end, n in by_end.items()]
    check("truncated", sorted(wanted), sorted(shown), where)
    for line in lines:
        if line.startswith("  --value ") and not line.startswith("  --value wall "):
            value = line.split()[1]
            other = Facts(file, value)
            check("value", f"  --value {value} shows {other.amount(other.tree.total)}", line, where)


def check_labels(facts, lines, where):
    for line in [line for line in lines if line.startswith("LABEL ")]:
        key, parts = line[len("LABEL "):].split(": ", 1)
        sums = facts.sum_by(lambda sample: sample.get("labels", {}).get(key, []))
        none = facts.head["samples"] - sum(n for n, sample in facts.samples if key in sample.get("labels", {}))
        wanted = [f"{text} {facts.share(n):.1f}%" for text, n in sums.items()] + [f"none {facts.share(none):.1f}%"] * bool(none)
        check("label", sorted(wanted), sorted(part.replace("  ", " ").strip() for part in parts.replace(" none", ", none").replace(",,", ",").split(",")),
              where)


def module_of(facts, function):
    modules = [facts.modules[i]["path"].rsplit("/", 1)[-1] for i in function["modules"]]
    return "" if not modules else modules[0] + (f" +{len(modules) - 1}" if len(modules) > 1 else "")


def check_functions(facts, lines, where):
    begin = next(i for i, line in enumerate(lines) if line.startswith("   SELF    TOTAL")) + 1
    shown = lines[begin:lines.index("", begin)]
    check("functions", len(facts.order), len(shown), where)
    for function, line in zip(facts.order, shown):
        wanted = f"{facts.percent(function['self'])}  {facts.percent(function['total'])} {facts.amount(function['self']):>10}  "
        check("function", wanted, line[:len(wanted)], where)
        if as_shown(function["name"]):
            check("function's name", function["name"], line[len(wanted):len(wanted) + len(function["name"])], where)
            if len(module_of(facts, function)) <= 24:
                check("module", module_of(facts, function), line[len(wanted) + len(function["name"]):].strip(), where)


def check_tree(facts, lines, where):
    """A chain is a run of nodes that nearly all samples go through: its lines stand in one column, the chains below 2 columns
    on."""
    begin = next(i for i, line in enumerate(lines) if line.startswith("  TOTAL  CALL TREE")) + 1
    left, last, node, column = {}, {-2: facts.tree}, None, 0  # last: of the chain in each column, its last node so far

    def goes_on(at):
        heaviest = at.below()[:1] if at else []
        return heaviest[0] if heaviest and heaviest[0].total >= 0.99 * at.total else None

    def text_of(at):
        return at.name + (f"  self {facts.share(at.self):.2f}%" if at.self / facts.head["samples"] >= 0.001 else "")

    for line in lines[begin:]:
        if line.startswith("  (subtrees below"):
            return
        text = line[9:].lstrip("│├└ ")
        lead = line[9:len(line) - len(text)]
        if text.startswith("⋮ "):
            for _ in range(int(text.split()[1])):
                node = goes_on(node)
            last[column] = node
            continue
        is_first = "├" in lead or "└" in lead or len(lead) != column or not goes_on(node)
        if is_first:
            column = len(lead)
            parent = last[column - 2]
            siblings = left.setdefault(id(parent), parent.below())
            fitting = [at for at in siblings if as_shown(at.name) and text_of(at) == text and facts.percent(at.total) == line[:7]]
            if not siblings:
                errors.append(f"{where}: a line of no node: {line}")
                return
            node = (fitting or siblings)[0]
            siblings.remove(node)
        else:
            node = goes_on(node)
        last[column] = node
        check("node", facts.percent(node.total), line[:7], where)
        if as_shown(node.name):
            check("node's name and self", text_of(node), text, where)


def check_processes(facts, file, value, where):
    lines = lines_of("--label", "pid", *(["--value", value] if value else []), file)
    begin = next(i for i, line in enumerate(lines) if line.startswith("  SHARE ")) + 1
    sums = facts.sum_by(lambda sample: [sample["pid"]])
    wanted = sorted(f"{facts.percent(n)} {facts.amount(n):>13}  (pid {pid})" for pid, n in sums.items())
    check("processes", wanted, sorted(line[:23] + line[line.rindex("(pid "):] for line in lines[begin:]), where)
    counts["process"] = counts.get("process", 0) + len(wanted)


with tempfile.TemporaryDirectory() as place:
    files, why = five_profiles.record(command, pathlib.Path(place))
    if why:
        print(f"SKIPPED: no recording here: {why}")
        sys.exit(0)
    for kind, file in files.items():
        for value in [None, *{"waits": ["off-cpu"], "allocations": ["alloc_space"]}.get(kind, [])]:
            where = f"{kind} {value or ''}"
            options = ["--functions", "1000000", "--tree-lines", "1000000"] + (["--value", value] if value else [])
            facts, lines = Facts(file, value), lines_of(*options, file)
            check_header(facts, lines, file, where)
            check_labels(facts, lines, where)
            check_functions(facts, lines, where)
            check_tree(facts, lines, where)
            check_processes(facts, file, value, where)
for kind in ("header", "value", "label", "function", "node", "process"):
    if not counts.get(kind):
        errors.append(f"no {kind} was compared")
print("\n".join([*errors[:30], f"{', '.join(f'{n} of {kind}' for kind, n in sorted(counts.items()))}: {len(errors)} errors"]))
sys.exit(1 if errors else 0)
