#!/usr/bin/python3
"""Do the examples in the pages hold?  check_examples.py ROOT CONTEXT [WINDLASS]

Looks at each fenced block of README, CONTRIBUTING and docs/ by its language:
    cpp, c   compiles, or stands like this in a program of examples/, which tests build and run
    sh       bash reads it; presets and scripts that it names are there; with WINDLASS, the built command, each option of
             `windlass` in it, and in `code` of the prose, is one that --help has
    cmake    names targets that tests/integration/consumer uses
    json     is JSON
    console, text    stands on a page of messages, which check_messages.py checks
CONTEXT has, by page, what its examples take for granted: declarations in front of them. It also says which are not compiled and why:
    // ---- docs/how-to/x.md           (or "x.md in C")
    int pid;
    // ---- docs/how-to/x.md 2: not compiled: REASON
All blocks of a page are compiled as one function, in their order. Last, the count says how many were checked how.
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import check_messages

BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.S | re.M)
SECTION = re.compile(r"^// ---- (\S+\.md)( in C)?(?: (\d+): not compiled: (.+))?$")
COMMAND = re.compile(r"(?:^|[\s;|&(`])windlass ([a-z]+)\b([^|;&>`)\n#]*)")
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*|-[a-zA-Z])(?![\w-])")
FUNCTION = re.compile(r"^(?!for |if |while |do |return )(?:static |\[\[noreturn\]\] )?\w[\w:*<> ]*?[ *&]+(?:\w+::)?\w+\([^;{}]*\)(?: const)? \{", re.M)
ELLIPSIS = re.compile(r"(?<=\{ )\.\.\.; |^ *\.\.\.$")  # code that the reader adds


class Block:
    def __init__(self, page, number, language, line, text):
        self.page, self.number, self.language, self.line, self.text = page, number, language, line, text

    def __str__(self):
        return f"{self.page}:{self.line}"


def pages_of(root):
    paths = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    return [path for path in paths if path.is_file()]


def blocks_of(root):
    for path in pages_of(root):
        text, counts = path.read_text(), collections.Counter()
        for match in BLOCK.finditer(text):
            kind = {"c": "code", "cpp": "code"}.get(match.group(2), match.group(2))
            counts[kind] += 1
            yield Block(str(path.relative_to(root)), counts[kind], match.group(2), text.count("\n", 0, match.start()) + 2, match.group(3))


def read_context(path):
    context, not_compiled, lines = collections.defaultdict(list), {}, None
    for line in path.read_text().split("\n"):
        if section := SECTION.match(line):
            page, in_c, number, reason = section.groups()
            lines = None if number else context[page, "c" if in_c else "cpp"]
            if number:
                not_compiled[page, int(number)] = reason
        elif lines is not None:
            lines.append(line)
    return context, not_compiled


def squeezed(text):
    return re.sub(r"\s+", "", re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S))


def source_of(blocks, context):
    """A translation unit of these blocks of pages, all of one language."""
    language = blocks[0].language
    includes, parts = [], []
    by_page = collections.defaultdict(list)
    for block in blocks:
        by_page[block.page].append(block)
    for number, (page, its_blocks) in enumerate(by_page.items()):
        before, inside = [], []
        for block in its_blocks:
            code = []
            for i, line in enumerate(block.text.split("\n")):
                if line.startswith("#include"):
                    includes.append(line)
                    line = ""
                code.append(ELLIPSIS.sub("", line))
            text = f'#line {block.line} "{page}"\n' + "\n".join(code)
            if not FUNCTION.search(text):
                inside.append("{\n" + text + "\n")
            elif language == "c" and (end := text.rfind("\n}\n")) >= 0:  # functions, then statements
                before.append(text[:end + 3])
                inside.append("{\n" + f'#line {block.line + text[:end].count(chr(10)) + 1} "{page}"\n' + text[end + 3:])
            else:
                before.append(text)
        declared = "\n".join(context.get((page, language), []))
        body = "\n".join(inside) + "}" * len(inside)
        if language == "cpp":
            parts.append(f"namespace page_{number} {{\n{declared}\n" + "\n".join(before) + f"\nvoid page() {{\n{body}\n}}\n}}\n")
        else:
            parts.append(f"{declared}\n" + "\n".join(before) + f"\nvoid page_{number}(void);\nvoid page_{number}(void) {{\n{body}\n}}\n")
    return "\n".join(dict.fromkeys(includes)) + "\n" + "\n".join(parts)


class Check:
    def __init__(self, root):
        self.root, self.errors, self.counts = root, [], collections.Counter()

    def compile(self, blocks, context):
        if not blocks:
            return
        language = blocks[0].language
        head = "\n".join(context["all.md", language]) + "\n"
        compiler = ["g++", "-std=c++20", "-x", "c++"] if language == "cpp" else ["gcc", "-std=c17", "-D_GNU_SOURCE", "-x", "c"]
        with tempfile.NamedTemporaryFile("w", suffix="." + language) as file:
            file.write(head + source_of(blocks, context))
            file.flush()
            done = subprocess.run([*compiler, "-fsyntax-only", "-w", "-I", self.root / "include", file.name], text=True, capture_output=True)
        if done.returncode:
            self.errors.append(done.stderr.strip())
        self.counts["compiled"] += len(blocks)

    def code(self, blocks, context, not_compiled):
        programs = "".join(squeezed(path.read_text()) for path in sorted((self.root / "examples").rglob("*")) if path.suffix in (".c", ".h", ".cpp"))
        left = dict(not_compiled)
        compiled = collections.defaultdict(list)
        for block in blocks:
            if squeezed(block.text) in programs:
                self.counts["in a program of examples/"] += 1
            elif left.pop((block.page, block.number), None):
                self.counts["not compiled, with a reason"] += 1
            elif "int main(" in block.text:
                with_main = subprocess.run(["g++" if block.language == "cpp" else "gcc", "-fsyntax-only", "-x", "c++" if block.language == "cpp" else "c", "-"],
                                           input=block.text, text=True, capture_output=True)
                self.counts["compiled"] += 1
                if with_main.returncode:
                    self.errors.append(f"{block}: {with_main.stderr.strip()}")
            else:
                compiled[block.language].append(block)
        self.compile(compiled.pop("cpp", []), context)
        for page in dict.fromkeys(block.page for block in compiled["c"]):  # C has no namespaces
            self.compile([block for block in compiled["c"] if block.page == page], context)
        self.errors += [f"{page}: no code block {number} that has to be left out" for page, number in left]

    def shell(self, block):
        text = "\n".join("" if line.startswith("(gdb)") else line for line in block.text.split("\n"))
        read = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
        if read.returncode:
            self.errors.append(f"{block}: {read.stderr.strip()}")
        presets = {p["name"] for p in json.loads((self.root / "CMakePresets.json").read_text())["configurePresets"]}
        for preset in re.findall(r"--preset (\w+)", text):
            if preset not in presets:
                self.errors.append(f"{block}: there is no preset {preset}")
        for reads, script in re.findall(r"(?:^|\s|'|\")(\. )?((?:\./|tests/|bench/|cmake/)[\w./-]+\.(?:sh|py)|\./(?:demo|test))\b",
                                        text):
            if not os.access(self.root / script, os.R_OK if reads else os.X_OK):
                self.errors.append(f"{block}: there is no script {script}")
        self.counts["read by bash"] += 1

    def options(self, windlass):
        """Each `windlass SUBCOMMAND --option` of any page, against --help. Pages of messages run theirs."""
        known = {}
        for path in pages_of(self.root):
            if str(path.relative_to(self.root)) in check_messages.PAGES:
                continue
            text = re.sub(r"\$\([^)\n]*\)", "X", path.read_text())
            for match in COMMAND.finditer(text):
                command, words = match.groups()
                where = f"{path.relative_to(self.root)}:{text.count(chr(10), 0, match.start(1)) + 1}"
                words = re.split(r"(?:^|\s)-- ", words + " ")[0]  # behind it stands the recorded program's
                if not (options := OPTION.findall(words)):
                    continue
                if command not in known:
                    asked = subprocess.run([windlass, command, "--help"], text=True, capture_output=True)
                    known[command] = set(OPTION.findall(asked.stdout)) if asked.returncode == 0 else None
                self.counts["options of windlass"] += len(options)
                if known[command] is None:
                    self.errors.append(f"{where}: windlass has no {command}")
                else:
                    self.errors += [f"{where}: windlass {command} has no {o}" for o in options if o not in known[command]]

    def cmake(self, block):
        consumer = (self.root / "tests/integration/consumer/CMakeLists.txt").read_text()
        for target in re.findall(r"windlass::\w+", block.text):
            if target not in consumer:
                self.errors.append(f"{block}: tests/integration/consumer does not use {target}")
        self.counts["of CMake"] += 1

    def json(self, block):
        try:
            json.loads(block.text)
        except ValueError as error:
            self.errors.append(f"{block}: no JSON: {error}")
        self.counts["of JSON"] += 1


def main(root, context_path, windlass=None):
    check = Check(root)
    context, not_compiled = read_context(context_path)
    blocks = list(blocks_of(root))
    check.code([b for b in blocks if b.language in ("cpp", "c")], context, not_compiled)
    for block in blocks:
        if block.language == "sh":
            check.shell(block)
        elif block.language == "cmake":
            check.cmake(block)
        elif block.language == "json":
            check.json(block)
        elif block.language in ("console", "text") and block.page in check_messages.PAGES:
            check.counts["messages"] += 1
        elif block.language not in ("cpp", "c"):
            check.errors.append(f"{block}: nothing checks {block.language}")
    if windlass:
        check.options(windlass)
    for error in check.errors:
        print(error)
    print(", ".join(f"{count} {how}" for how, count in check.counts.items()) + f"; {len(check.errors)} errors")
    return 1 if check.errors or not blocks else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), *sys.argv[3:]))
