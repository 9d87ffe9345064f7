#!/usr/bin/python3
"""Counts what a run of all tests left behind, and fails unless every skip is an allowed one.

count_results.py RESULTS ALLOWED

RESULTS holds GoogleTest's XML files and CTest's (ctest.xml), of the release build in the folder itself, of each other build in a folder
of its name; in a folder `again` of each, the same of the few programs that failed and ran once more by themselves: their first outcome
does not count, but is printed; and the files `missing` and `failed`, a line "name<TAB>reason" for each other thing that did not run, or failed.

A line of ALLOWED is "pattern  # reason". The pattern names suite.test, or a CTest entry, or a missing thing; in front of it, of a
build other than the release build, or of a virtual machine, its name and a colon (aarch64:OtherProcess.*, vm-amd64:Kernels.*). The reason is what the skip itself says,
or a part of it. Both may have * in them. A line that begins with # is for people.

Prints the table of kernels, every skip with its reason, every failure, and last "N passed, M failed, K skipped". Exit status 1 if
something failed or was skipped without leave.
"""
import fnmatch
import pathlib
import sys
import xml.etree.ElementTree as ElementTree

AGAIN = "again"


class Case:
    def __init__(self, name, outcome, reason="", row=None):
        self.name, self.outcome, self.reason, self.row = name, outcome, " ".join(reason.split()), row


def gtest_cases(root, prefix):
    for case in root.iter("testcase"):
        name = f"{prefix}{case.get('classname')}.{case.get('name')}"
        row = next((p.get("value") for p in case.iter("property") if p.get("name") == "kernels_row"), None)
        skipped = case.find("skipped")
        if case.find("failure") is not None:
            yield Case(name, "failed", row=row)
        elif skipped is not None:
            # The message is the place, a line of its own, and then the reason.
            yield Case(name, "skipped", skipped.get("message", "").partition("\n")[2], row)
        elif case.get("status") == "run":
            yield Case(name, "passed", row=row)


def ctest_cases(root, prefix, counted):
    """What GoogleTest does not report: fixtures, scripts, and programs that died. `counted`: of each program, whether a case failed."""
    for case in root.iter("testcase"):
        name = case.get("name")
        skipped = case.find("skipped")
        if case.get("status") == "disabled":
            continue
        if skipped is not None:
            output = (case.findtext("system-out") or "").splitlines()
            reason = "; ".join(line for line in output if "SKIPPED" in line) or skipped.get("message", "")
            yield Case(prefix + name, "skipped", reason)
        elif case.get("status") == "notrun":
            yield Case(prefix + name, "failed", "did not run")
        elif case.get("status") == "fail" and not counted.get(name, False):
            yield Case(prefix + name, "failed", "ended with an error, and none of its cases says why")
        elif case.get("status") == "run" and name not in counted:
            yield Case(prefix + name, "passed")


def writer_of(path):
    """The CTest entry that wrote a file of GoogleTest, and the prefix of its cases: vm-amd64-test_kernels.xml comes from a machine."""
    if not path.stem.startswith("vm-"):
        return path.stem, ""
    machine = "-".join(path.stem.split("-")[:2])
    return path.stem.replace("-", "_"), machine + ":"


def ctest_root(path):
    return ElementTree.parse(path).getroot() if path.exists() else ElementTree.Element("testsuite")


def read_folder(folder, prefix):
    # What a program wrote when it ran once more stands for what it wrote before, under the same name.
    files = {path.name: path for place in (folder, folder / AGAIN) for path in sorted(place.glob("*.xml"))}
    files.pop("ctest.xml", None)
    counted, cases = {}, []
    for path in files.values():
        writer, machine = writer_of(path)
        try:
            found = list(gtest_cases(ElementTree.parse(path).getroot(), prefix + machine))
        except ElementTree.ParseError as error:
            found = [Case(prefix + writer, "failed", f"its results cannot be read: {error}")]
        cases += found
        if found:
            counted[writer] = any(case.outcome == "failed" for case in found)
    once, again = (ctest_root(place / "ctest.xml") for place in (folder, folder / AGAIN))
    repeated = {case.get("name") for case in again.iter("testcase") if case.get("status") != "disabled"}
    for case in list(once):
        if case.get("name") in repeated:
            print(f"RAN TWICE {prefix}{case.get('name')}: failed beside other programs")
            once.remove(case)
    for root in (once, again):
        cases += ctest_cases(root, prefix, counted)
    return cases


def read_results(results):
    cases = read_folder(results, "")
    for folder in sorted(path for path in results.iterdir() if path.is_dir() and path.name != AGAIN):
        cases += read_folder(folder, folder.name + ":")
    for file, outcome in (("missing", "skipped"), ("failed", "failed")):
        path = results / file
        for line in path.read_text().splitlines() if path.exists() else []:
            name, _, reason = line.partition("\t")
            cases.append(Case(name, outcome, reason))
    return cases


def read_allowed(path):
    allowed = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        pattern, _, reason = (part.strip() for part in line.partition("#"))
        if not pattern or not reason:
            sys.exit(f"{path}:{number}: a skip is allowed by test and reason: 'suite.test  # reason'")
        allowed.append((pattern, reason))
    return allowed


def is_allowed(case, allowed):
    # [ has no meaning here: only * is special, so that reasons can be copied.
    def matches(text, pattern):
        return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]"))

    return any(matches(case.name, pattern) and matches(case.reason, f"*{reason}*") for pattern, reason in allowed)


def main(results, allowed_path):
    allowed = read_allowed(allowed_path)
    cases = read_results(results)
    of = {outcome: [c for c in cases if c.outcome == outcome] for outcome in ("passed", "failed", "skipped")}
    refused = [case for case in of["skipped"] if not is_allowed(case, allowed)]
    rows = [case.row for case in cases if case.row]
    if rows:
        print(f"{'kernel':<22} {'machine':<8} {'recording':<22} {'samples':>8} {'whole':>8} {'wrong':>6} {'lost':>5} {'exit':>5}")
    for row in rows:
        print(row)
    for case in of["skipped"]:
        print(f"{'SKIPPED WITHOUT LEAVE' if case in refused else 'SKIPPED'} {case.name}\n    {case.reason}")
    for case in of["failed"]:
        print(f"FAILED {case.name} {case.reason}".rstrip())
    if refused:
        print(f"{len(refused)} skips are not in {allowed_path}: make them run, or list each with its reason")
    if not cases:
        print("no results were found: nothing ran")
    print(f"{len(of['passed'])} passed, {len(of['failed'])} failed, {len(of['skipped'])} skipped")
    return 1 if of["failed"] or refused or not cases else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
