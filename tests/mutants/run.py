#!/usr/bin/python3
"""Plants small faults into a copy of the sources, one at a time, and tells how many of them the tests notice.

run.py [--root ROOT] [--build FOLDER] [--sample N] [--seed N] [--goal PERCENT] [--jobs N] [--quick] [--list] [PATH...]

A fault, a mutant, is a change of the syntax: a comparison, a condition or an operator is another one, a number is one more, a statement is
left out (operators.py). The sample is drawn anew for each seed: from every folder by its size, from the files of the paths given if there are
any. The seed is the number of commits if none is given. All mutants of a sample are compiled into one build; the environment variable
WINDLASS_MUTANT chooses one in every process. Two stages judge:

1. The quick tests that tests.list has for the mutant's file run, until one fails or takes far too long: the mutant is noticed.
2. The slower tests of that file then run for each mutant that is left, unless --quick is given. Such a test may fail by itself on a busy machine.
   So the test has to fail twice with the mutant, and then to pass without one. A test that fails without a mutant judges no more.

What no unit test runs is not mutated: left_out.list names it, with the reason. A file that has neither tests nor a reason is an error. What no test
could notice stands in equivalent.list, with the reason, and is never drawn.

The build that the compiler commands are taken from is ROOT/build/release. Results are kept in results.txt in the build folder as they come: a run
that was cut off goes on where it was as long as the sources and the seed stay the same. Mutants are judged in random order, so the results of a run
that was cut off are a fair sample, too.
Exit status 1: the quick tests notice less than PERCENT (60) of the mutants. The goal is 90.
77: there is no libclang.
"""
import argparse
import concurrent.futures
import contextlib
import fnmatch
import hashlib
import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
COPIED = ("CMakeLists.txt", "CMakePresets.json", "VERSION", "LICENSE", "README.md", "CHANGELOG.md", "bench", "bpf", "cmake", "examples", "fuzz", "include", "packaging", "src", "tests")
GOAL, BOUND = 90, 60  # percent: of 298 over all files 67.4 were noticed, and two standard errors of that are 5.4
SURE_OF_TIME = 4  # a test that takes so many times what it takes without a mutant hangs
ROUNDS = 6  # of compiling: mutants that do not compile are taken out after each


def judges(path):
    """tests.list: the quick and the slower tests for the files whose paths begin with a prefix, longest prefix first."""
    table = []
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            quick, _, slower = line.partition("|")
            prefix, *tests = quick.split()
            table.append((prefix, tests, slower.split()))
    return sorted(table, key=lambda entry: -len(entry[0]))


def tests_of(path, judges):
    """The quick tests of a file: those of its longest prefix."""
    return next((quick for prefix, quick, _ in judges if path.startswith(prefix)), [])


def slower_tests_of(path, judges):
    """The slower tests of a file: those of its longest prefix that has any."""
    return next((slower for prefix, _, slower in judges if slower and path.startswith(prefix)), [])


def reasons(path):
    """equivalent.list, left_out.list: what stands in front of "  # " in each line, and the reason behind it."""
    lines = [line.partition("  # ") for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    return {what.strip(): why.strip() for what, _, why in lines}


class Commands:
    """The compiler's arguments for each file, from a build's compile_commands.json."""

    def __init__(self, root, build):
        self.root, self.of = root, {}
        for entry in json.loads(subprocess.check_output([HERE.parent.parent / "cmake/single_files.py", build])):
            file = os.path.relpath(entry["file"], root)
            if not file.startswith(".."):
                self.of[file] = entry

    def arguments(self, entry):
        words = iter(shlex.split(entry["command"])[1:])
        out = []
        for word in words:
            if word in ("-o", "-c", "-MF", "-MT", "-include"):
                next(words)
            elif word == "-isystem":
                out += [word, next(words)]
            elif word.startswith(("-I", "-D", "-std", "-isystem")):
                out.append(word)
        return out

    def find(self, path):
        """The arguments for a file, and what has to be included before it. A header has those of a source in its folder; None: nothing that
        this build compiles is of it."""
        if path in self.of:
            return (["-x", "c" if path.endswith(".c") else "c++", *self.arguments(self.of[path])], "")
        if not path.endswith(".h"):
            return None
        before = ""
        if path.startswith("bpf/"):
            test = "/test_bpf_step_a64" if "a64" in path else "/test_bpf_step_0"  # the sources of a test are joined into one
            neighbours, before = [f for f in sorted(self.of) if test in f], '#include "windlass_user_env.h"\n'
        else:
            folder = os.path.dirname(path)
            neighbours = [f for f in sorted(self.of) if os.path.dirname(f) == folder] or ["src/walk/stack_walker.cpp"]
        return (["-x", "c++", *self.arguments(self.of[neighbours[0]])], before) if neighbours and neighbours[0] in self.of else None


def candidates(root, paths, judges, left_out):
    """The files that may have mutants, with their sizes in lines."""
    listed = subprocess.run(["git", "ls-files", "src", "bpf", "include"], cwd=root, capture_output=True, text=True)
    files = listed.stdout.split() if listed.returncode == 0 else [str(p.relative_to(root)) for p in sorted((root / "src").rglob("*"))]
    files = [f for f in files if f.endswith((".cpp", ".h", ".c")) and not any(fnmatch.fnmatch(f, pattern) for pattern in left_out)]
    if unknown := [f for f in files if not tests_of(f, judges)]:
        sys.exit(f"neither tests.list nor left_out.list has {' '.join(unknown)}")
    return {f: (root / f).read_bytes().count(b"\n") for f in files if not paths or any(f.startswith(p) for p in paths)}


class Sampler:
    """Draws mutants. A file is parsed when it is first drawn."""

    def __init__(self, root, commands, judges, known):
        self.root, self.commands, self.judges, self.known, self.parsed = root, commands, judges, known, {}

    def mutants(self, path):
        import operators
        if path not in self.parsed:
            found = self.commands.find(path)
            if found is None:
                print(f"left out: {path}: the build compiles nothing of it")
            try:
                mutants = operators.find(self.root, path, *found) if found else []
            except ValueError as wrong:
                print(f"left out: {wrong}")
                mutants = []
            for mutant in mutants:
                mutant.tests = tests_of(path, self.judges)
                mutant.slower = [name for name in slower_tests_of(path, self.judges) if name not in mutant.tests]
            self.parsed[path] = mutants
        return self.parsed[path]

    def draw(self, files, size, seed):
        """About `size` mutants: of each folder its share, at least one."""
        folders, drawn = {}, {}
        for file in sorted(files):
            folders.setdefault(os.path.dirname(file), []).append(file)
        total = sum(files.values())
        for folder, inside in sorted(folders.items()):
            chance = random.Random(f"{seed} {folder}")
            wanted = max(1, round(size * sum(files[f] for f in inside) / total))
            for _ in range(20 * wanted):
                if wanted == 0:
                    break
                mutants = self.mutants(chance.choices(inside, [files[f] for f in inside])[0])
                # Those known are drawn and put back, so that a new line of equivalent.list leaves the rest of a sample as it is.
                if mutants and (mutant := chance.choice(mutants)).number not in drawn and str(mutant) not in self.known:
                    drawn[mutant.number], wanted = mutant, wanted - 1
        return list(drawn.values())


def mutated(text, mutants):
    """A file's text with all its mutants in it. One may lie in another: then it is in the other's original."""
    regions = {}
    for mutant in mutants:
        regions.setdefault((mutant.begin, mutant.end), []).append(mutant)
    spans = sorted(regions, key=lambda s: (s[0], -s[1]))

    def render(begin, end):
        out, at = [], begin
        while spans and spans[0][0] < end:
            span = spans.pop(0)
            out += [text[at:span[0]], switched(render(*span), regions[span])]
            at = span[1]
        return "".join([*out, text[at:end]])

    def switched(original, group):
        if any(m.condition or m.replacement.startswith("!!(") for m in group):
            original = f"!!({original})"
        for mutant in group:
            if original.rstrip().endswith(";"):
                original = f"if (wl_mutant({mutant.number}u)) {{ {mutant.replacement} }} else {{ {original} }}"
            else:
                original = f"(wl_mutant({mutant.number}u) ? ({mutant.replacement}) : ({original}))"
        return original

    return render(0, len(text))


def by_files(mutants):
    files = {}
    for mutant in mutants:
        files.setdefault(mutant.path, []).append(mutant)
    return files


def write_copy(root, copy, mutants):
    """The sources with the mutants in them, into `copy`; files that stay the same are left alone."""
    in_files = by_files(mutants)
    wanted = set()
    for name in COPIED:
        start = root / name
        for source in [start] if start.is_file() else sorted(p for p in start.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            relative = source.relative_to(root)
            wanted.add(relative)
            content = source.read_bytes()
            if here := in_files.get(str(relative)):
                header = os.path.relpath(root / "tests/mutants/mutant.h", source.parent)
                content = f'#include "{header}"\n#line 1\n'.encode() + mutated(content.decode("latin-1"), here).encode("latin-1")
            target = copy / relative
            if not target.is_file() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
                shutil.copymode(source, target)
    for old in [p for name in COPIED for p in (copy / name).rglob("*") if p.is_file() and p.relative_to(copy) not in wanted]:
        old.unlink()


class Test:
    """A test of the build, as CTest knows it."""
    locks = {}  # by the names that RESOURCE_LOCK has in CTest

    def __init__(self, entry):
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        self.name, self.command = entry["name"], entry.get("command")
        self.directory = properties.get("WORKING_DIRECTORY")
        self.alone = bool(properties.get("RUN_SERIAL"))
        self.held = [self.locks.setdefault(name, threading.Lock()) for name in sorted(properties.get("RESOURCE_LOCK", []))]
        self.environment = dict(v.split("=", 1) for v in properties.get("ENVIRONMENT", []))
        self.limit = float(properties.get("TIMEOUT", 120))

    def run(self, number, limit):
        """None if it passes, else what it says; and the seconds that it took."""
        with contextlib.ExitStack() as held:
            for lock in self.held:
                held.enter_context(lock)
            return self.run_now(number, limit)

    def run_now(self, number, limit):
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
        """How long each test takes without a mutant. Those that fail, which judge nothing."""
        failing = []
        for name in names:
            said, seconds = self.tests[name].run(0, self.tests[name].limit)
            self.usual[name] = seconds
            if said is not None:
                failing.append(name)
                del self.usual[name]
                print(f"{name} fails without any mutant: {why_failed(said)}\n{said[-3000:]}", flush=True)
        return failing

    def in_order(self, mutant, names):
        last = self.noticed_by.get(str(mutant.number))
        return sorted((n for n in names if n in self.usual), key=lambda n: (n != last, self.usual[n]))

    def noticed(self, mutant, name):
        """What a test says of a mutant that it notices."""
        test, usual = self.tests[name], self.usual.get(name)
        if usual is None:  # it has failed without any mutant meanwhile
            return None
        said, _ = test.run(mutant.number, SURE_OF_TIME * usual + 10)
        return said

    def quickly(self, mutant):
        """Which quick test notices it, and how; or None."""
        for name in self.in_order(mutant, mutant.tests):
            if (said := self.noticed(mutant, name)) is not None:
                self.noticed_by[str(mutant.number)] = name
                return f"{name}: {why_failed(said)}"
        return None

    def slowly(self, mutant):
        """Which slower test notices it, and how; or None. A busy machine must not count."""
        for name in self.in_order(mutant, mutant.slower):
            if self.noticed(mutant, name) is None or (said := self.noticed(mutant, name)) is None:
                continue
            if self.check([name]):
                print(f"{name} judges no more", flush=True)
                continue
            self.noticed_by[str(mutant.number)] = name
            return f"{name}: {why_failed(said)}"
        return None

    def remember(self):
        self.memory.write_text(json.dumps(self.noticed_by))


def at_errors(said, root, copy, mutants):
    """The mutants that stand on lines where the compiler found errors."""
    bad = set()
    for path, line in re.findall(r"^(\S+?):(\d+):\d+: (?:fatal )?error: ", said, re.MULTILINE):
        path = os.path.relpath(os.path.join(copy, "build/release", path), copy)
        for mutant in mutants:
            if mutant.path == path or path.endswith("/" + mutant.path):
                text = (root / mutant.path).read_bytes()
                first, last = (text.count(b"\n", 0, at) + 1 for at in (mutant.begin, mutant.end))
                if first <= int(line) <= last:
                    bad.add(mutant.number)
    return bad


def configure(root, copy, binary):
    """As `release` is configured, so that a compiler cache has what is free of mutants. Mutated code may be warned of, which -w prevents.
    The cache overlooks -w, and takes nothing from here."""
    os.environ.update(CCACHE_BASEDIR=str(copy), CCACHE_NOHASHDIR="1", CCACHE_IGNOREOPTIONS="-w", CCACHE_READONLY="1",
                      CCACHE_SLOPPINESS="pch_defines,time_macros,include_file_mtime,include_file_ctime")
    preset = ["--preset", "release"] if (copy / "CMakePresets.json").is_file() else ["-G", "Ninja"]
    launcher = [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX") if shutil.which("ccache")]
    subprocess.run(["cmake", "--no-warn-unused-cli", "-S", ".", "-B", binary, *preset, "-DCMAKE_CXX_FLAGS=-w", "-DCMAKE_C_FLAGS=-w", *launcher,
                    f"-DWINDLASS_PE_CORPORA={root}/build/release/corpora/pe",
                    f"-DWINDLASS_AARCH64_SYSROOT={root}/build/aarch64-sysroot"], check=True, cwd=copy, stdout=subprocess.DEVNULL)


def build(root, folder, mutants, jobs):
    """Writes, configures and compiles; the mutants that compile, and the tests by name."""
    copy, binary = folder / "source", folder / "source/build/release"
    names = sorted({name for mutant in mutants for name in [*mutant.tests, *mutant.slower]})
    for _ in range(ROUNDS):
        write_copy(root, copy, mutants)
        configure(root, copy, binary)
        done = subprocess.run(["ninja", f"-j{jobs}", "-k0", *names], cwd=binary, capture_output=True, text=True)
        if done.returncode == 0:
            break
        bad = at_errors(done.stdout, root, copy, mutants)
        if not bad:
            sys.exit(f"it does not compile:\n{done.stdout[-4000:]}")
        print(f"{len(bad)} mutants do not compile and are left out", flush=True)
        mutants = [m for m in mutants if m.number not in bad]
    else:
        sys.exit("too many mutants do not compile")
    known = json.loads(subprocess.run(["ctest", "--show-only=json-v1"], cwd=binary, check=True, capture_output=True).stdout)["tests"]
    tests = {entry["name"]: Test(entry) for entry in known if entry["name"] in names}
    for name in names:
        if name not in tests:
            sys.exit(f"there is no test {name}")
    return mutants, tests


class Results:
    """What came out so far of the mutants of one state of the sources, in a file: a line for each mutant and stage, written at once."""

    def __init__(self, path, state):
        self.path, self.known, self.lock = path, {}, threading.Lock()
        head, *lines = path.read_text().splitlines() if path.is_file() else [""]
        # A line that was cut off has too few tabs, and its mutant is looked at again.
        lines = [line for line in lines if line.count("\t") >= 3] if head == state else []
        for number, stage, how, _ in (line.split("\t", 3) for line in lines):
            self.known[stage, int(number)] = how
        path.write_text("\n".join([state, *lines]) + "\n")

    def add(self, mutant, stage, how):
        with self.lock, self.path.open("a") as file:
            file.write(f"{mutant.number}\t{stage}\t{' '.join((how or '').split())}\t{mutant}\n")


def state_of(copy):
    """A sum over the sources with the mutants in them."""
    total = hashlib.sha256()
    for path in sorted(p for name in COPIED for p in [copy / name, *(copy / name).rglob("*")] if p.is_file()):
        total.update(str(path.relative_to(copy)).encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()


def commits(root):
    counted = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=root, capture_output=True, text=True)
    return int(counted.stdout) if counted.returncode == 0 else 0


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=HERE.parent.parent)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--goal", type=float, default=BOUND)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("paths", nargs="*")
    return parser.parse_args()


def judge_all(mutants, stage, judge, results, jobs):
    """One stage, "quick" or "slower": which mutants are noticed, and which are left."""
    look, tests = (judge.quickly, lambda m: m.tests) if stage == "quick" else (judge.slowly, lambda m: m.slower)
    noticed, left = [], []

    def look_at(mutant):
        if (stage, mutant.number) in results.known:
            how = results.known[stage, mutant.number] or None
        else:
            how = look(mutant)
            results.add(mutant, stage, how)
        (left if how is None else noticed).append(mutant)
        survives = "LEFT    " if stage == "quick" and mutant.slower else "SURVIVES"
        print(f"{survives if how is None else 'noticed '} {mutant.place()}" + (f"  [{how}]" if how else ""), flush=True)

    parallel = [m for m in mutants if not any(judge.tests[n].alone for n in tests(m))]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(look_at, parallel))
    for mutant in (m for m in mutants if m not in parallel):
        look_at(mutant)
    return noticed, left


def main():
    options = read_options()
    try:
        import operators  # noqa: F401
    except ImportError as missing:
        print(f"SKIPPED: {missing} (Debian's package python3-clang-19 has it)")
        return 77
    root = options.root.resolve()
    folder = (options.build or root / "build/mutants").resolve()
    table = judges(root / "tests/mutants/tests.list")
    left_out = reasons(root / "tests/mutants/left_out.list")
    sampler = Sampler(root, Commands(root, root / "build/release"), table, reasons(root / "tests/mutants/equivalent.list"))
    seed = commits(root) if options.seed is None else options.seed
    mutants = sampler.draw(candidates(root, options.paths, table, left_out), options.sample, seed)
    if options.list:
        for mutant in mutants:
            print(f"{mutant.number:10} {mutant.place()}")
        return 0
    for pattern, why in left_out.items():
        print(f"not mutated: {pattern}: {why}")
    print(f"seed {seed}: {len(mutants)} mutants", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    if options.quick:
        for mutant in mutants:
            mutant.slower = []
    mutants, tests = build(root, folder, mutants, options.jobs)
    random.Random(seed).shuffle(mutants)
    judge = Judge(tests, folder / "noticed_by.json")
    results = Results(folder / "results.txt", state_of(folder / "source"))
    if judge.check(sorted({name for m in mutants if ("quick", m.number) not in results.known for name in m.tests})):
        return 1
    noticed, survivors = judge_all(mutants, "quick", judge, results, options.jobs)
    judge.remember()
    share = 100 * len(noticed) / max(1, len(mutants))
    print(f"the quick tests notice {len(noticed)} of {len(mutants)} ({share:.1f}%)", flush=True)
    also = []
    if not options.quick:
        judge.check(sorted({name for m in survivors if ("slower", m.number) not in results.known for name in m.slower}))
        also, survivors = judge_all(survivors, "slower", judge, results, options.jobs)
        judge.remember()
    for mutant in survivors:
        print(f"survivor: {mutant.place()}")
    total = len(noticed) + len(also)
    print(f"mutants: {total} of {len(mutants)} noticed, by the quick tests {share:.1f}%, with the slower ones {100 * total / max(1, len(mutants)):.1f}%, "
          f"seed {seed}; the quick tests have to notice {options.goal:g}%, and the goal of all is {GOAL}%")
    return 0 if noticed and share >= options.goal else 1


if __name__ == "__main__":
    sys.exit(main())
