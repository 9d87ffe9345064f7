#!/usr/bin/python3
"""Prints compile_commands.json of BUILD with every file by itself, without precompiled headers.

single_files.py BUILD

A build that compiles the files of a folder together (WINDLASS_TOGETHER) lists the units that CMake makes, each of which includes its
files. Tools that read a file as its author sees it need an entry a file, for example clang-tidy.
"""
import json
import pathlib
import re
import shlex
import sys


def of_unit(entry):
    """An entry a file that the unit of `entry` includes; the entry itself, if it is no unit; none for a precompiled header."""
    unit = pathlib.Path(entry["directory"], entry["file"])
    if unit.name.startswith("cmake_pch."):
        return []
    if not re.fullmatch(r"unity_.*_cxx\.cxx", unit.name):
        return [entry]
    files = re.findall(r'^#include "(.*)"$', unit.read_text(), re.M)
    return [{**entry, "file": file, "command": entry["command"].replace(entry["file"], file)} for file in files]


def without_precompiled(entry):
    """Also without an option that only GCC knows."""
    words = shlex.split(entry["command"])
    kept, skip = [], False
    for word, following in zip(words, words[1:] + [""]):
        if skip or word in ("-Winvalid-pch", "-fno-partial-inlining") or word == "-include" and "cmake_pch" in following:
            skip = not skip and word == "-include"
            continue
        kept.append(word)
    return {**entry, "command": shlex.join(kept)}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    entries = json.loads(pathlib.Path(sys.argv[1], "compile_commands.json").read_text())
    print(json.dumps([without_precompiled(single) for entry in entries for single in of_unit(entry)], indent=1))


main()
