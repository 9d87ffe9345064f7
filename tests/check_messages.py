#!/usr/bin/python3
"""Are the messages of the command those that the reference lists?

check_messages.py sources ROOT LIST: each text in the sources that can be printed is on a page of PAGES, and each text in
a list of the pages (a block of ```text) is in the sources. LIST names what is left out, a line each:
    src/capi/                     # a folder or file, and why
    src/cli/dump.cpp: " CIE "     # one text of it, and why
check_messages.py provoke ROOT COMMAND: runs the ```console blocks of the pages, each in a folder of its own. What a block
has below its command lines ("$ ...") must be printed, line by line and in that order. N stands for a number, ... for
anything. A comment ahead of a block says what the machine must allow, as allowed() has it: <!-- needs: root sampling -->.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PAGES = ["docs/reference/messages.md", "docs/reference/refusals.md", "docs/reference/reasons.md"]
SECONDS = 600  # for a block, on a machine with much else to do
TRACEFS = "/sys/kernel/tracing"

TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n\\]|\\.)*|R"\((.*?)\)"|"((?:\\.|[^"\\])*)"|'(?:\\.|[^'\\\n])*'|\w+|\S""",
    re.S | re.M)
# Two words next to each other, or a word behind a value: what a person reads.
IS_TEXT = re.compile(r"[A-Za-z]{2,}[,:;]? \(?[a-z{-]|\{\} [a-z]{2,}")
IS_ASSEMBLY = re.compile(r"\s*\.(cfi|globl|ifndef|p2align|rva|section|seh|size|type)\w* ")
# What they get is not printed as a message: text for the compiler, options' help, listings.
OTHER_CALLS = {"static_assert", "deprecated", "asm", "add_option", "add_flag", "add_subcommand", "add_option_group",
               "add_option_function", "add_duration", "add_optional_duration",
               "add_optional_bytes", "add_target_options", "description", "add_list", "choice", "text", "put", "value", "sized", "number"}


def texts_of(source):
    """(line, text) of each string literal that is a text; those that the compiler joins are one."""
    found, calls, before = [], [], ""
    for match in TOKEN.finditer(source):
        token = match.group()
        if token.startswith(("//", "/*")) or token.lstrip().startswith("#"):
            continue
        literal = match.group(1) if match.group(1) is not None else match.group(2)
        if literal is not None:
            if before == '"':
                found[-1][1] += literal
            else:
                found.append([source.count("\n", 0, match.start()) + 1, literal, list(calls)])
            before = '"'
            continue
        if token in "({[":
            calls.append(before)
        elif token in ")}]" and calls:
            calls.pop()
        before = token
    for line, literal, inside in found:
        if IS_TEXT.search(literal) and not IS_ASSEMBLY.match(literal) and not OTHER_CALLS.intersection(inside):
            yield line, literal.replace('\\"', '"').replace("\\\\", "\\")


def pattern_of(text):
    """(expression, fixed characters) for each line of the text, as a line of a page has it: values may be anything, and a
    way out may stand in a column of its own."""
    patterns = []
    for line in text.replace("{{", "\0").replace("}}", "\1").split("\\n"):
        pieces = re.split(r"\{[^}]*\}|\. Way out:\s*", line.strip())
        pieces = [piece.replace("\0", "{").replace("\1", "}") for piece in pieces]
        if line.strip():
            patterns.append((re.compile(".*".join(map(re.escape, pieces))), sum(map(len, pieces))))
    return patterns


class Page:
    def __init__(self, root, name):
        self.name, self.lines, self.blocks, self.listed = name, [], [], []
        needs, block = set(), None  # of the block at hand: language, lines, first line
        for number, line in enumerate((root / name).read_text().split("\n"), 1):
            self.lines.append(line)
            if block is None and line.startswith("```"):
                block = (line[3:].strip(), number, [])
            elif block is not None and line.startswith("```"):
                if block[0] == "console":
                    self.blocks.append((block[1], needs, block[2]))
                if block[0] == "text":
                    self.listed += [(block[1] + 1 + i, text) for i, text in enumerate(block[2]) if text]
                needs, block = set(), None
            elif block is not None:
                block[2].append(line)
            elif match := re.fullmatch(r"<!-- needs: (.*) -->", line):
                needs = set(match.group(1).split())


def read_list(path):
    """[(path's beginning, text or None, used?)]"""
    entries = []
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r'(src/[^:\s]*)(?:: "(.*)")?\s+# .+', line)
        if not match:
            sys.exit(f'{path}:{number}: neither \'src/FOLDER/  # reason\' nor \'src/FILE: "text"  # reason\'')
        entries.append([match.group(1), match.group(2), False])
    return entries


def check_sources(root, list_path):
    pages = [Page(root, name) for name in PAGES]
    page_text = "\n".join(line for page in pages for line in page.lines)
    left_out, errors, patterns, count = read_list(list_path), [], [], 0
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in (".cpp", ".h"):
            continue
        name = str(path.relative_to(root))
        for line, text in texts_of(path.read_text()):
            entry = next((e for e in left_out if name.startswith(e[0]) and e[1] in (None, text)), None)
            if entry:
                entry[2] = True
                continue
            count += 1
            wanted = pattern_of(text)
            patterns += wanted
            if not all(pattern.search(page_text) for pattern, _ in wanted):
                errors.append(f'{name}:{line}: on no page of the messages: "{text}"')
    for path, text, used in left_out:
        if not used:
            errors.append(f"{list_path}: nothing in the sources for {path}" + (f': "{text}"' if text else ""))
    for page in pages:
        for number, text in page.listed:
            if not any(2 * fixed >= len(text) and pattern.search(text) for pattern, fixed in patterns):
                errors.append(f"{page.name}:{number}: no such text in the sources: {text}")
    print(*errors, f"{count} texts in the sources, {len(errors)} errors", sep="\n")
    return 1 if errors else 0


def expected(line):
    """N: a number; ...: anything."""
    parts = re.split(r"(\bN\b|\.\.\.)", line.rstrip())
    return "".join({"N": r"[0-9][0-9,.]*", "...": ".*"}.get(part, re.escape(part)) for part in parts)


def allowed(command):
    """What this machine and user allow."""
    def number_in(path):
        file = pathlib.Path(path)
        return int(file.read_text()) if file.exists() else 0

    def succeeds(*words):
        return subprocess.run(words, capture_output=True).returncode == 0

    found = {
        "root": os.geteuid() == 0 and succeeds("unshare", "-m", "-p", "-f", "true"),
        "sampling": succeeds(command, "doctor"),
        "own-events": number_in("/proc/sys/kernel/perf_event_paranoid") <= 2 and succeeds("unshare", "-Ur", "true"),
        "kernel-threads": pathlib.Path("/proc/2/comm").exists() and pathlib.Path("/proc/2/comm").read_text() == "kthreadd\n",
    }
    return {name for name, is_allowed in found.items() if is_allowed}


def run_block(command, lines):
    """What the block's commands print, and what of the lines below them is not there."""
    script = "\n".join(line[2:] for line in lines if line.startswith("$ "))
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # for commands that another user runs
        scratch = pathlib.Path(folder, "scratch")
        scratch.mkdir()
        scratch.chmod(0o777)
        pathlib.Path(folder, "windlass").symlink_to(command)
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(scratch), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(["timeout", "-k", "5", str(SECONDS), "bash", "-c", script], cwd=scratch, env=environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = done.stdout.decode(errors="replace")
    rest = [line.rstrip() for line in output.replace("\r", "\n").split("\n")]
    missing = []
    for line in lines:
        if line.startswith("$ ") or not line.strip():
            continue
        pattern = expected(line)
        at = next((i for i, printed in enumerate(rest) if re.fullmatch(pattern, printed)), None)
        if at is None:
            missing.append(line)
        else:
            rest = rest[at + 1:]
    return output, missing


def provoke(root, command):
    have, failed, count, left_out = allowed(command), 0, 0, 0
    for name in PAGES:
        for number, needs, lines in Page(root, name).blocks:
            if needs - have:
                print(f"{name}:{number}: left out, this machine does not allow: {', '.join(sorted(needs - have))}")
                left_out += 1
                continue
            output, missing = run_block(command, lines)
            count += 1
            if missing or not any(not line.startswith("$ ") for line in lines):
                failed += 1
                print(f"{name}:{number}: not printed:", *missing, "  but:", *output.split("\n")[:20], sep="\n  ")
    if left_out and not failed:
        print(f"SKIPPED: no privilege to sample or to provoke {left_out} of the blocks")
    print(f"{count} blocks, {left_out} left out, {failed} failed")
    return 1 if failed or not count else 0


def have_tracefs():
    """Some blocks record tracepoints. Where tracefs is not mounted, it is, for this program alone."""
    if os.path.isdir(TRACEFS + "/events"):
        return
    if "WINDLASS_OWN_MOUNTS" not in os.environ and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0:
        os.environ["WINDLASS_OWN_MOUNTS"] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])
    if subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACEFS]).returncode != 0:
        print(f"tracefs is not mounted. Way out: mount -t tracefs tracefs {TRACEFS}", flush=True)


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "sources":
        return check_sources(*map(pathlib.Path, arguments[1:]))
    if len(arguments) == 3 and arguments[0] == "provoke":
        have_tracefs()
        return provoke(pathlib.Path(arguments[1]), os.path.abspath(arguments[2]))
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
