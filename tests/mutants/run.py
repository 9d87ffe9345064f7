#!/usr/bin/env python3
"""Plants faults into a copy of the sources, one at a time, and tells which of them the tests notice.

run.py [--root ROOT] [--build FOLDER] [--seconds N | --sample N] [--jobs N] [--check | --list] [PATTERN...]

The faults, mutants, are in *.list beside this file. All are compiled into one build; the environment variable WINDLASS_MUTANT chooses one
in every process, and in the BPF programs. For each, the tests that its list names run until one fails or takes far too long: the mutant is noticed.
A list has these lines; # begins a comment:

  tests NAME...     the tests of the mutants that follow, those first that notice most. In a mutant: run before them. A mutant ends at an empty line.
  file PATH         whose mutants follow
  setup             a change that the harness needs and that is always made: then - and + as below
  = TEXT            a mutant, and what is wrong with it
  - ORIGINAL        occurs once in the file; white space counts as one blank. Several such lines are one text. Of «these» only what is between them
                    is mutated, the rest says where.
  + REPLACEMENT     a statement (or nothing) for what ends in ; or }, else an expression of the same type
  equivalent WHY    no test could notice it
  unnoticed WHY     no test notices it yet

Patterns choose mutants by a part of their list's name (own.list), file or text. --seconds: as many as fit this time, others with every commit.
--sample: about N, spread over all lists, the same every time. What came out is kept in results.txt in the build folder as it comes: a run that was cut
off goes on where it was as long as the sources stay the same. --tests: only these of the lists' tests, such as the quick ones; what they do not notice
is looked at again by a run with all.
--check: nothing is built; each mutant's original has to be in its file.
Exit status 1: less than 95 % of the mutants that are not equivalent are noticed, or one is not that nobody knows of.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib

HERE = pathlib.Path(__file__).resolve().parent
COPIED = ("CMakeLists.txt", "VERSION", "LICENSE", "README.md", "CHANGELOG.md", "bench", "bpf", "cmake", "examples", "fuzz", "include", "src", "tests")
CONFIGURATION = ("-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS=-w", "-DCMAKE_C_FLAGS=-w", "-DCMAKE_CXX_FLAGS_DEBUG=-O1", "-DCMAKE_C_FLAGS_DEBUG=-O1",
                 "-DWINDLASS_WERROR=OFF", "-DWINDLASS_PRECOMPILED_HEADERS=ON")
SURE_OF_TIME = 4  # a test that takes so many times what it takes without a mutant hangs


class Misplaced(Exception):
    """A mutant that does not fit its file."""


class Mutant:
    def __init__(self, list_name, path, text):
        self.list, self.path, self.text = list_name, path, text
        self.original, self.replacement, self.tests = [], None, []
        self.known, self.why = None, ""
        # Of the text, so that a new mutant does not change the others' files.
        self.number = zlib.crc32(f"{path}: {text}".encode()) | 1

    def __str__(self):
        return f"{self.path}: {self.text}"


def parse(path):
    """The mutants of a list, and its setup."""
    mutants, setup, tests, file, current = [], [], [], None, None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        word, _, rest = line.partition(" ")
        if not line.strip():
            current = None  # what follows is another mutant, or about all that follow
        if not line.strip() or line.startswith("#"):
            continue
        if word == "file":
            file, current = rest.strip(), None
        elif word == "tests" and current is None:
            tests = rest.split()
        elif word in ("=", "setup"):
            current = Mutant(path.stem, file, rest)
            (mutants if word == "=" else setup).append(current)
            current.tests = list(tests)
        elif current is None:
            sys.exit(f"{path}:{number}: not understood: {line}")
        elif word == "-":
            current.original.append(rest)
        elif word == "+":
            current.replacement = [*(current.replacement or []), rest]
        elif word == "tests":
            current.tests = rest.split() + [t for t in current.tests if t not in rest.split()]
        elif word in ("equivalent", "unnoticed"):
            current.known, current.why = word, rest
        else:
            sys.exit(f"{path}:{number}: not understood: {line}")
    return mutants, setup


def place(mutant, text):
    """Where in its file's text a mutant is: [begin, end)."""
    parts = re.split("([«»])", " ".join(" ".join(mutant.original).split()))
    if "«" not in parts:
        parts = ["", "«", *parts, "»", ""]
    words = ["(" if p == "«" else ")" if p == "»" else r"\s+".join(re.escape(w) for w in re.split(" +", p)) for p in parts]
    found = list(re.finditer("".join(words), text))
    if len(found) != 1:
        raise Misplaced(f"{mutant}: the original is {len(found)} times in the file")
    return found[0].span(1)


def mutated(text, mutants, setup):
    """A file's text with all its mutants in it. One may lie in another: then it is in the other's original."""
    regions = {}
    for mutant in mutants + setup:
        regions.setdefault(place(mutant, text), []).append(mutant)
    spans = sorted(regions, key=lambda s: (s[0], -s[1]))

    def render(begin, end):
        out, at = [], begin
        while spans and spans[0][0] < end:
            span = spans.pop(0)
            if span[0] < at or span[1] > end:
                raise Misplaced(f"{regions[span][0]}: overlaps another mutant")
            out += [text[at:span[0]], switched(render(*span), regions[span])]
            at = span[1]
        return "".join([*out, text[at:end]])

    def switched(original, group):
        statement = original.rstrip()[-1] in ";}"
        for mutant in group:
            replacement = "\n".join(mutant.replacement)
            if mutant in setup:
                original = replacement
            elif statement:
                original = f"if (wl_mutant({mutant.number}u)) {{ {replacement} }} else {{ {original} }}"
            else:
                original = f"(wl_mutant({mutant.number}u) ? ({replacement}) : ({original}))"
        return original

    return render(0, len(text))


def by_files(mutants, setup):
    """Of each file that there are any in: the mutants, and what is set up."""
    files = {}
    for i, group in enumerate((mutants, setup)):
        for mutant in group:
            files.setdefault(mutant.path, ([], []))[i].append(mutant)
    return files


def misplaced(root, mutants, setup):
    """What is wrong with the mutants, a line each."""
    lines = [] if mutants else ["there are no mutants"]
    for mutant in mutants + setup:
        if not mutant.original or mutant.replacement is None:
            lines.append(f"{mutant}: it says not what is replaced, or not by what")
        elif mutant.known and not mutant.why:
            lines.append(f"{mutant}: {mutant.known}, but not why")
        elif not mutant.tests and mutant not in setup:
            lines.append(f"{mutant}: it names no tests")
    if lines:
        return lines
    for path, (here, always) in by_files(mutants, setup).items():
        if not (root / path).is_file():
            lines.append(f"{here[0] if here else always[0]}: there is no such file")
            continue
        text, before = (root / path).read_text(), len(lines)
        for mutant in here + always:
            try:
                place(mutant, text)
            except Misplaced as wrong:
                lines.append(str(wrong))
        if len(lines) == before:
            try:
                mutated(text, here, always)
            except Misplaced as wrong:
                lines.append(str(wrong))
    return lines


def write_copy(root, copy, mutants, setup):
    """The sources with the mutants in them, into `copy`; files that stay the same are left alone."""
    in_files = by_files(mutants, setup)
    wanted = set()
    for name in COPIED:
        start = root / name
        for source in [start] if start.is_file() else sorted(p for p in start.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            relative = source.relative_to(root)
            wanted.add(relative)
            content = source.read_bytes()
            if here := in_files.get(str(relative)):
                header = os.path.relpath(root / "tests/mutants/mutant.h", source.parent)
                text = mutated(content.decode(), *here)
                content = f'#include "{header}"\n#line 1\n{text}'.encode()
            target = copy / relative
            if not target.is_file() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
                shutil.copymode(source, target)
    for old in [p for p in copy.rglob("*") if p.is_file() and p.relative_to(copy) not in wanted]:
        old.unlink()


class Test:
    """A test of the build, as CTest knows it."""
    slow = threading.Lock()  # held by one that has the machine to itself

    def __init__(self, entry):
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        self.name, self.command = entry["name"], entry.get("command")
        self.directory = properties.get("WORKING_DIRECTORY")
        self.alone = bool(properties.get("RUN_SERIAL"))
        self.environment = dict(v.split("=", 1) for v in properties.get("ENVIRONMENT", []))
        self.limit = float(properties.get("TIMEOUT", 120))

    def run(self, number, limit):
        """None if it passes, else what it says; and the seconds that it took."""
        environment = {**os.environ, **self.environment, "GTEST_FAIL_FAST": "1", "WINDLASS_MUTANT": str(number)}
        for name in ("GTEST_OUTPUT", "WINDLASS_WHOLE"):  # as ./test sets them: results of its own, and long looks
            environment.pop(name, None)
        begin = time.monotonic()
        with subprocess.Popen(self.command, cwd=self.directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, start_new_session=True) as process:
            try:
                said, _ = process.communicate(timeout=limit)
                outcome = None if process.returncode == 0 else said.decode(errors="replace")
            except subprocess.TimeoutExpired:
                outcome = "it hangs"
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return outcome, time.monotonic() - begin


def why_failed(said):
    """The line of a test's output that says most."""
    lines = [line.strip() for line in said.splitlines()]
    failed = [line for line in lines if line.startswith("[  FAILED  ]") and "(" in line]
    return failed[0].removeprefix("[  FAILED  ]").split("(")[0].strip() if failed else lines[-1][:100] if lines else "no word"


class Judge:
    def __init__(self, tests, memory):
        self.tests, self.usual = tests, {}
        self.memory = memory  # which test noticed a mutant the last time: it is asked first
        self.noticed_by = json.loads(memory.read_text()) if memory.is_file() else {}

    def check(self, names):
        """Without a mutant every test must pass. How long each takes."""
        good = True
        for name in names:
            said, seconds = self.tests[name].run(0, self.tests[name].limit)
            self.usual[name] = seconds
            if said is not None:
                good = False
                print(f"{name} fails without any mutant: {why_failed(said)}\n{said[-3000:]}")
        return good

    def judge(self, mutant):
        """Which test notices it, and how; or None."""
        last = self.noticed_by.get(str(mutant.number))
        for name in sorted(mutant.tests, key=lambda n: n != last):
            said, _ = self.tests[name].run(mutant.number, SURE_OF_TIME * self.usual[name] + 10)
            if said is not None:
                self.noticed_by[str(mutant.number)] = name
                return f"{name}: {why_failed(said)}"
        return None

    def remember(self):
        self.memory.write_text(json.dumps(self.noticed_by))


def build(root, folder, mutants, setup, chosen, jobs):
    """Writes, configures and compiles; the tests that the chosen mutants need, by name."""
    copy, binary = folder / "source", folder / "build"
    os.environ.setdefault("CCACHE_SLOPPINESS", "pch_defines,time_macros,include_file_mtime,include_file_ctime")
    write_copy(root, copy, mutants, setup)
    launcher = [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX") if shutil.which("ccache")]
    subprocess.run(["cmake", "-S", copy, "-B", binary, *CONFIGURATION, *launcher, f"-DWINDLASS_PE_CORPORA={root}/build/release/corpora/pe",
                    f"-DWINDLASS_AARCH64_SYSROOT={root}/build/aarch64-sysroot"], check=True, stdout=subprocess.DEVNULL)
    names = {name for mutant in chosen for name in mutant.tests}
    targets = subprocess.run(["ninja", "-t", "targets", "all"], cwd=binary, check=True, capture_output=True, text=True).stdout
    wanted = [name for name in sorted(names) if re.search(f"^{name}: phony", targets, re.MULTILINE)]
    subprocess.run(["ninja", f"-j{jobs}", "-k0", *wanted], cwd=binary, check=True)
    known = json.loads(subprocess.run(["ctest", "--show-only=json-v1"], cwd=binary, check=True, capture_output=True).stdout)["tests"]
    tests = {entry["name"]: Test(entry) for entry in known if entry["name"] in names}
    for name in names - tests.keys():
        sys.exit(f"there is no test {name}")
    return tests


def by_turns(mutants, root):
    """The mutants in an order that begins elsewhere with every commit."""
    counted = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=root, capture_output=True, text=True)
    turn = int(counted.stdout) if counted.returncode == 0 else 0
    return sorted(mutants, key=lambda m: (m.number ^ turn * 0x9E3779B1) * 0x85EBCA77 & 0xFFFFFFFF)


def sample(mutants, size):
    """Of every list its share of `size`, at least one: those whose numbers, mixed, are smallest."""
    lists = {}
    for mutant in mutants:
        lists.setdefault(mutant.list, []).append(mutant)
    return [m for group in lists.values()
            for m in sorted(group, key=lambda m: m.number * 0x85EBCA77 & 0xFFFFFFFF)[:max(1, round(size * len(group) / len(mutants)))]]


class Results:
    """What came out so far of the mutants of one state of the sources, in a file: a line each, written at once."""

    def __init__(self, path, state):
        self.path, self.known, self.lock = path, {}, threading.Lock()
        lines = path.read_text().splitlines() if path.is_file() else []
        if lines[:1] == [state]:
            # A line that was cut off has no second tab, and is looked at again.
            self.known = {int(number): how for number, how, _ in (line.split("\t", 2) for line in lines[1:] if line.count("\t") >= 2)}
        path.write_text("\n".join([state, *(line for line in lines[1:] if self.known and line.count("\t") >= 2)]) + "\n")

    def add(self, mutant, how):
        with self.lock, self.path.open("a") as file:
            file.write(f"{mutant.number}\t{' '.join((how or '').split())}\t{mutant}\n")


def state_of(copy):
    """A sum over the sources with the mutants in them."""
    total = hashlib.sha256()
    for path in sorted(p for p in copy.rglob("*") if p.is_file()):
        total.update(str(path.relative_to(copy)).encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=HERE.parent.parent)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--tests", help="with commas between them")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_args()
    root = options.root.resolve()
    folder = (options.build or root / "build/mutants").resolve()

    mutants, setup = [], []
    for path in sorted((root / "tests/mutants").glob("*.list")):
        more, more_setup = parse(path)
        mutants, setup = mutants + more, setup + more_setup
    numbers = {mutant.number for mutant in mutants}
    if len(numbers) != len(mutants):
        sys.exit("two mutants have the same file and text")
    if wrong := misplaced(root, mutants, setup):
        print(*wrong, sep="\n")
        return 1
    if options.check:
        print(f"{len(mutants)} mutants are where their lists say")
        return 0
    chosen = [m for m in mutants if not options.patterns or any(p in f"{m.list}.list {m}" for p in options.patterns)]
    if options.sample:
        taken = {m.number for m in sample(mutants, options.sample)}
        chosen = [m for m in chosen if m.number in taken]
    if options.list:
        for mutant in chosen:
            print(f"{mutant.number:10} {mutant}")
        return 0
    if options.tests:
        for mutant in chosen:
            mutant.tests = [name for name in mutant.tests if name in options.tests.split(",")]
        chosen = [m for m in chosen if m.tests]
    folder.mkdir(parents=True, exist_ok=True)
    tests = build(root, folder, mutants, setup, chosen, options.jobs)
    judge = Judge(tests, folder / "noticed_by.json")
    deadline = time.monotonic() + options.seconds if options.seconds else float("inf")
    chosen = [m for m in (by_turns(chosen, root) if options.seconds else chosen) if m.known != "equivalent"]
    results = Results(folder / "results.txt", state_of(folder / "source"))
    left = [m for m in chosen if m.number not in results.known]
    if not judge.check(sorted({name for mutant in left for name in mutant.tests})):
        return 1

    noticed, survivors = [], []

    def look_at(mutant):
        if time.monotonic() >= deadline:
            return
        if mutant.number in results.known:
            how = results.known[mutant.number] or None
        else:
            how = judge.judge(mutant)
            if how is not None or not options.tests:
                results.add(mutant, how)
        (survivors if how is None else noticed).append(mutant)
        print(f"{'SURVIVES' if how is None else 'noticed '} {mutant}" + (f"  [{how}]" if how else ""), flush=True)

    parallel = [m for m in chosen if not any(tests[n].alone for n in m.tests)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(look_at, parallel))
    for mutant in (m for m in chosen if m not in parallel):
        look_at(mutant)
    judge.remember()

    total = len(noticed) + len(survivors)
    new = [m for m in survivors if m.known is None]
    stale = [m for m in noticed if m.known is not None]
    for mutant in stale:
        print(f"marked as {mutant.known}, but noticed: {mutant}")
    for mutant in survivors:
        print(f"nobody notices {mutant}" + (f"  ({mutant.known}: {mutant.why})" if mutant.known else ""))
    print(f"mutants: {len(noticed)} of {total} noticed, {len(new)} survive that nobody knows of, {len(mutants) - total} not looked at or equivalent")
    return 1 if new or stale or not total or len(noticed) < 0.95 * total else 0


if __name__ == "__main__":
    sys.exit(main())
