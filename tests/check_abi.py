#!/usr/bin/python3
"""Is the C interface still that of tests/abi, which the last release had?  check_abi.py [--renew] ROOT LIBRARY...

From the C headers below ROOT a library of empty functions is compiled with all debug information. abidw describes it, and abidiff
compares the description with tests/abi/windlass.abi. What the compiler does not describe, constants, is in tests/abi/constants.txt.
New functions and constants are compatible, and new members at the end of a struct that says its size. Each function must be exported by one of the
LIBRARIES. --renew writes both files instead.
"""
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

NOT_OF_THE_INTERFACE = r"WINDLASS_(VERSION_\w+|API|NORETURN|\w+_H)$"  # macros with another value in each release, or with none


def output_of(*words, text=None):
    run = subprocess.run([str(word) for word in words], input=text, text=True, capture_output=True)
    if run.returncode:
        sys.exit(f"{words[0]} failed:\n{run.stderr}")
    return run.stdout


def own_lines(preprocessed, folder):
    """The lines that come from files in this folder."""
    own = False
    for line in preprocessed.split("\n"):
        if marker := re.match(r'# \d+ "(.*?)"', line):
            own = marker.group(1).startswith(str(folder))
        elif own:
            yield line


def statements(text):
    """Statements outside of all braces."""
    depth = begin = 0
    for at, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0 and character == ";":
            yield " ".join(text[begin:at].split())
            begin = at + 1


def functions_of(preprocessed, folder):
    """By name: the declaration of each function."""
    text = re.sub(r"__attribute__\(\((?:[^()]|\([^()]*\))*\)\)", "", "\n".join(own_lines(preprocessed, folder)))
    found = {}
    for statement in statements(text):
        match = re.match(r"(?!typedef|static)[\w \t*]+?\b(\w+)\s*\([^{]*\)$", statement)
        if match:
            found[match.group(1)] = statement
    return found


def constants_of(compiler, headers, source, work):
    """By name: the value of each enumerator and of each macro that is a number."""
    text = re.sub(r"/\*.*?\*/", "", "\n".join(header.read_text() for header in headers), flags=re.S)
    names = set(re.findall(r"^ *# *define (WINDLASS_\w+) +\S", text, re.M))
    for body in re.findall(r"\benum\b[^{;(]*\{(.*?)\}", text, re.S):
        names |= set(re.findall(r"(?:^|,)\s*([A-Z]\w+)", body))
    names = sorted(name for name in names if not re.match(NOT_OF_THE_INTERFACE, name))
    lines = "".join(f'printf("{name} %lld\\n", (long long)({name}));\n' for name in names)
    output_of(*compiler, "-xc", "-o", work / "constants", "-", text=f"#include <stdio.h>\n{source}int main(void) {{\n{lines}}}\n")
    return output_of(work / "constants")


def described(root, work):
    """Writes windlass.abi and constants.txt into the folder, and returns the names of the functions."""
    folder = root / "include/windlass/c"
    headers = sorted(folder.glob("*.h"))
    source = "".join(f"#include <{header}>\n" for header in headers)
    compiler = ["cc", "-std=gnu2x", f"-I{root / 'include'}"]  # C23, where a parameter needs no name
    preprocessed = output_of(*compiler, "-E", "-xc", "-", text=source)
    functions = functions_of(preprocessed, folder)
    stubs = "".join(f"{declaration} {{ __builtin_trap(); }}\n" for declaration in functions.values())
    output_of(*compiler, "-w", "-g", "-O0", "-fPIC", "-shared", "-nostdlib", "-xc", "-o", work / "windlass.so", "-", text=preprocessed + stubs)
    output_of("abidw", "--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--type-id-style", "hash",
              "--out-file", work / "windlass.abi", work / "windlass.so")
    (work / "constants.txt").write_text(constants_of(compiler, headers, source, work))
    return set(functions)


def table(path):
    return dict(line.split() for line in path.read_text().splitlines())


def structs(path):
    """By name: the members of each struct that says its size, as (name, offset, type)."""
    found = {}
    for struct in xml.etree.ElementTree.parse(path).iter("class-decl"):
        members = [(member.find("var-decl").get("name"), member.get("layout-offset-in-bits"), member.find("var-decl").get("type-id"))
                   for member in struct.findall("data-member")]
        if members and members[0][0] == "size":
            found[struct.get("name")] = members
    return found


def problems(kept, work):
    # abidiff has a suppression for members that are inserted at the end. It suppresses all other changes of members, too.
    before, now = structs(kept / "windlass.abi"), structs(work / "windlass.abi")
    grown = [name for name, members in before.items() if len(now.get(name, [])) > len(members) and now[name][:len(members)] == members]
    (work / "grown.ini").write_text("".join(f"[suppress_type]\n  type_kind = struct\n  name = {name}\n" for name in grown))
    run = subprocess.run(["abidiff", "--no-added-syms", "--suppressions", work / "grown.ini", kept / "windlass.abi", work / "windlass.abi"],
                         text=True, capture_output=True)
    if run.returncode:
        yield (run.stdout + run.stderr).strip()
    now = table(work / "constants.txt")
    for name, value in table(kept / "constants.txt").items():
        if now.get(name) != value:
            yield f"{name} was {value} and is {now.get(name, 'gone')}"


def main():
    renew = sys.argv[1:2] == ["--renew"]
    root, *libraries = map(pathlib.Path, sys.argv[2 if renew else 1:])
    root = root.resolve()
    if platform.machine() != "x86_64":
        return print("SKIPPED: the description is that of x86-64")
    try:
        output_of("abidw", "--version")
    except FileNotFoundError:
        return print("SKIPPED: there is no abidw")
    kept = root / "tests/abi"
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        functions = described(root, work)
        if renew:
            for file in ["windlass.abi", "constants.txt"]:
                (kept / file).write_text((work / file).read_text())
            return print(f"{len(functions)} functions described in {kept}")
        found = list(problems(kept, work))
        exported = set(re.findall(r" [TWi] (\w+)", output_of("nm", "-D", "--defined-only", *libraries)))
        found += [f"{name} is declared, and no library exports it" for name in sorted(functions - exported)]
        found += [f"{name} is exported, and no header declares it" for name in sorted(exported - functions) if name.startswith("windlass_")]
        count = len(table(work / "constants.txt"))
    if found:
        print(*found, sep="\n")
        sys.exit("Way out: keep the old interface. Or, if the break is meant, say so in CHANGELOG.md under Changed, and run tests/check_abi.py --renew .")
    print(f"{len(functions)} functions and {count} constants are compatible")


main()
