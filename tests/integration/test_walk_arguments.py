#!/usr/bin/python3
"""Does `walk --arguments` print the arguments that functions were called with?  test_walk_arguments.py COMMAND

Programs with known arguments are compiled by each compiler that is here: at -O0 every argument must be there, and at -O2
every value that is printed must be right. So must those of functions that run, wherever a walk meets them. GDB reads the
same core files. Debug information made hostile must end in a text.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

command, errors, counts = sys.argv[1], [], {}
sources = pathlib.Path(__file__).parent / "arguments"
folder = pathlib.Path(tempfile.mkdtemp(prefix="windlass_arguments_"))
HIDDEN = ("?", "<optimized out>")
TEXT = '"hello \\"w\\"\\x1b[31m"'
BIG = '{l = {1, 2, 3, 4, 5, 6, 7, 8, ...}, name = "name", p = {x = 5, y = 6, bits = 7, sbits = 8}}'

# Of a function's argument: its value. Behind a pointer's: what follows the address, which the program prints.
TYPES = {
    "ints": {"c": "-5", "uc": "200", "s": "-300", "us": "60000", "i": "-7", "u": "4000000000", "l": "-5000000000",
             "ull": "18000000000000000000"},
    "others": {"b": "true", "e": "BLUE", "f": "1.5", "d": "-2.25", "ld": "3.5", "t": f"POINTER {TEXT}", "p": "@p",
               "fn": "0x0", "c": "120 'x'"},
    "structs": {"p": "{x = 1, y = 2, bits = 3, sbits = -4}", "b": BIG, "u": "{i = 1065353216, f = 1}", "q": "@q",
                "r": "@r"},
    "inlined": {"depth": "0", "k": "-118"},
    "main": {"argc": "2", "argv": "@argv"},
}
RECURSIVE = [{"n": str(n), "acc": acc} for n, acc in enumerate(("-118", "-37", "-10", "-1", "2"))]
STRING = 'POINTER: {_M_dataplus = {_M_p = POINTER "short"}, _M_string_length = 5, {_M_local_buf = "short", ' \
         '_M_allocated_capacity = NUMBER}}'
CLASSES = {
    "by_reference": {"a": "POINTER: 3", "d": "POINTER: 4.25", "b": "{value = 7}",
                     "rr": "POINTER: {value = {value = 122 'z'}}", "arr": 'POINTER: "abc"',
                     "object": "POINTER: {<Base> = {VTABLE = POINTER, id = 9}, weight = 0.5}"},
    "ns::Derived::method": {"this": "@this", "a": "5", "s": STRING, "l": "kHigh"},
}
AT_WORK = {"leaf": {"a": "12", "b": "44", "s": 'POINTER "text"', "p": "{a = 11, b = 22}"},
           "mid": {"a": "11", "b": "22", "c": "3", "d": "4", "e": "5", "f": "6", "g": "7", "h": "8"},
           "top": {"a": "11", "b": "22"}, "maybe": {"a": "11", "b": "22"}}
# By operations with types: whole with GCC, which gives each operation operands of one type.
TYPED = {"derived": {"half": "2000000000", "third": "6000000000000000000", "low": "1", "wide": "-3703701", "rest": "1",
                     "product": "-12451", "is_more": "1", "difference": "4001234568"},
         "source": {"a": "-1234567", "b": "4000000001", "c": "18000000000000000002"}}
RUST = {"values::leaf": {"a": "-8", "b": "200", "c": "113 'q'", "d": "true", "s": "{data_ptr = POINTER, length = 4}",
                         "sh": "Square{__0 = 3}", "p": "{x = -5, y = 6}"},
        "values::choose": {"o": "Some{__0 = 3}", "n": "Some{__0 = POINTER}", "w": "None", "b": "None",
                           "r": "Err{__0 = -9}", "e": "Ok{__0 = 1}"},
        "values::shapes": {"a": "Rectangle{width = 1.5, height = 3}", "c": "Circle{__0 = 2.5}", "u": "Empty", "k": "Plain",
                           "x": "Boxed{__0 = POINTER}", "t": "Some{__0 = Some{__0 = 5}}"}}


def count(key, number=1):
    counts[key] = counts.get(key, 0) + number


class Running:
    """A program that has come to its place."""

    def __init__(self, program):
        self.process = subprocess.Popen([program, "one"], stdout=subprocess.PIPE, text=True)
        self.pointers = {}
        for line in self.process.stdout:
            if line.startswith("ready"):
                break
            _, name, value = line.split()
            self.pointers[name] = value

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def core(self):
        subprocess.run(["gcore", "-o", folder / "core", str(self.process.pid)], capture_output=True, check=True)
        return str(folder / f"core.{self.process.pid}")


def functions_of(subject, *options):
    """Of each frame and inlined call: the function, and its arguments by name; null where they are not known."""
    done = subprocess.run([command, "walk", "--arguments", "-i", "--json", *options, subject], capture_output=True,
                          text=True, timeout=120)
    if done.returncode:
        errors.append(f"walk {subject}: {done.returncode}: {done.stderr}")
    for line in done.stdout.splitlines():
        for frame in json.loads(line)["frames"]:
            for function in [*frame.get("inlined", []), frame]:
                values = function.get("arguments")
                name = (function["function"] or "").split("(")[0]
                yield name, None if values is None else {one["name"]: one["value"] for one in values}


def is_right(value, expected, pointers):
    if expected.startswith("@"):
        return value == pointers[expected[1:]]
    pattern = re.escape(expected).replace("POINTER", "@?0x[0-9a-f]+").replace("NUMBER", r"\d+").replace("VTABLE", r"_vptr[.$]Base")
    return re.fullmatch(pattern, value) is not None


def check(what, functions, truth, pointers, whole):
    """`whole`: no value may be hidden, no function missing."""
    seen, recursive = set(), iter(RECURSIVE)
    for name, values in functions:
        expected = next(recursive) if name == "recursive" else truth.get(name)
        if expected is None:
            continue
        seen.add(name)
        if values is None or list(values) != list(expected):
            errors.append(f"{what}: {name} has {values}, not {list(expected)}")
            continue
        for argument, value in values.items():
            if value in HIDDEN and not whole:
                count("hidden")
            elif is_right(value, expected[argument], pointers):
                count("right")
            else:
                errors.append(f"{what}: {name}: {argument} is {value}, not {expected[argument]}")
    if whole and seen != set(truth):
        errors.append(f"{what}: only {sorted(seen)} are there")


def compiled(compiler, source, *options):
    program = folder / "_".join([source.split(".")[0], compiler, *options]).replace("/", "_")
    quiet = "-Awarnings" if compiler == "rustc" else "-w"
    subprocess.run([compiler, quiet, *options, "-o", program, sources / source], check=True, cwd=folder)
    return program


def check_stopped(compiler, source, truth, *options, whole=False):
    whole = whole or "-O0" in options or "-Copt-level=0" in options
    program = compiled(compiler, source, *options)
    with Running(program) as running:
        check(f"{program.name}, live", functions_of(str(running.process.pid)), truth, running.pointers, whole)
        core = running.core()
        check(f"{program.name}, core", functions_of(core), truth, running.pointers, whole)
        return program, core


def check_at_work(compiler, *options):
    program = compiled(compiler, "at_work.c", *options)
    before = counts.get("right", 0)
    with Running(program) as running:
        walks = functions_of(str(running.process.pid), "--repeat", "100", "--interval", "1ms")
        check(f"{program.name}, at work", walks, AT_WORK, {}, False)
    if counts.get("right", 0) - before < 100:
        errors.append(f"{program.name}: nearly nothing is shown of 100 walks")


def check_beside_gdb(program, core):
    """Integers, of which both print the same."""
    script = ["set print frame-arguments all", "set print entry-values no", "bt"]
    text = subprocess.run(["gdb", "-nx", "-batch", *(word for line in script for word in ("-ex", line)), program, core],
                          capture_output=True, text=True, timeout=120).stdout
    theirs = [dict(re.findall(r"[( ](\w+)=(-?\d+)\b(?!x)", line)) for line in text.splitlines() if re.search(r"\bints \(", line)]
    ours = [values for name, values in functions_of(core) if name == "ints"]
    if len(theirs) != 1 or len(ours) != 1:
        errors.append(f"{program.name}: GDB has {theirs}, and we {ours}")
        return
    for name, value in ours[0].items():
        if value in HIDDEN or name not in theirs[0]:
            continue
        count("as GDB")
        if value != theirs[0][name]:
            errors.append(f"{program.name}: {name} is {value}, and to GDB {theirs[0][name]}")


def patched_program():
    """Its name of an argument holds an escape sequence, and its type `endless` is a name of itself."""
    program = compiled("gcc", "patched.c", "-O0", "-gdwarf-4", "-no-pie")
    listing = subprocess.run(["readelf", "-wi", program], capture_output=True, text=True, check=True).stdout
    found = re.search(r"<1><([0-9a-f]+)>: [^<]*DW_TAG_typedef\)\n[^\n]*DW_AT_name[^\n]*: endless\n"
                      r"(?:[^\n]*DW_AT_decl[^\n]*\n)*\s*<([0-9a-f]+)>\s+DW_AT_type", listing)
    entry, place = int(found[1], 16), int(found[2], 16)
    info, strings = folder / "info", folder / "strings"
    subprocess.run(["objcopy", f"--dump-section=.debug_info={info}", f"--dump-section=.debug_str={strings}", program],
                   check=True)
    data = bytearray(info.read_bytes())
    data[place:place + 4] = entry.to_bytes(4, "little")  # DW_FORM_ref4, in the only unit
    info.write_bytes(data)
    strings.write_bytes(strings.read_bytes().replace(b"name_with_escape", b"name\x1b]0;escape!!"))
    subprocess.run(["objcopy", f"--update-section=.debug_info={info}", f"--update-section=.debug_str={strings}", program],
                   check=True)
    return program


def check_hostile():
    with Running(patched_program()) as running:
        done = subprocess.run([command, "walk", "--arguments", str(running.process.pid)], capture_output=True, timeout=60)
    if b"\x1b" in done.stdout:
        errors.append("a name drives the terminal")
    line = next((line for line in done.stdout.decode().splitlines() if " patched+" in line), "")
    shown = re.search(r" \((.*)\)$", line)
    wanted = "name\\x1b]0;escape!!=5, value=<endless>, held={inside = <endless>}, pointer=0x"
    if not shown or not shown[1].startswith(wanted):
        errors.append(f"hostile debug information: {line!r}")
    count("hostile")


def main():
    for tool in ("gcc", "gdb", "gcore", "objcopy", "readelf"):
        if not shutil.which(tool):
            print(f"SKIPPED: {tool} is not installed")
            return
    compilers = [name for name in ("gcc", "clang-14", "clang-19", "clang-22") if shutil.which(name)]
    for compiler in compilers:
        for level in ("-O0", "-O2"):
            truth = {**TYPES, "recursive": {}}
            check_stopped(compiler, "all_types.c", truth, level, "-gdwarf-4", "-gsplit-dwarf")
            program, core = check_stopped(compiler, "all_types.c", truth, level, "-gdwarf-5")
            if compiler == "gcc" or level == "-O0":  # GDB takes registers for kept that calls of Clang's code change
                check_beside_gdb(program, core)
        check_stopped(compiler, "typed.c", TYPED, "-O2", "-g", whole=compiler == "gcc")
        for options in (("-O0",), ("-O2",), ("-O2", "-fomit-frame-pointer", "-gdwarf-4"), ("-Os",)):
            check_at_work(compiler, "-g", *options)
    for compiler in ("g++", "clang++-19", "clang++-22"):
        for level in ("-O0", "-O2") if shutil.which(compiler) else ():
            whole = ["-fstandalone-debug"] if compiler != "g++" else []
            check_stopped(compiler, "classes.cpp", CLASSES, level, "-g", *whole)
    for level in ("0", "2") if shutil.which("rustc") else ():
        check_stopped("rustc", "values.rs", RUST, "-g", f"-Copt-level={level}")
    check_hostile()
    shutil.rmtree(folder)
    for error in errors[:40]:
        print(error)
    print(", ".join(f"{key} {number}" for key, number in counts.items()), "errors", len(errors))
    if counts.get("right", 0) < 3000 or counts.get("as GDB", 0) < 10:
        errors.append("too little was compared")
        print(errors[-1])
    sys.exit(bool(errors))


main()
