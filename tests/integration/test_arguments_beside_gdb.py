#!/usr/bin/python3
"""Does `walk --arguments` print the values that GDB has?  test_arguments_beside_gdb.py COMMAND

Ten programs stand still and one runs, each compiled by GCC, and by Clang or rustc where they are, at -O0 to -O3. GDB and the command
look at the same process. Each value that the command prints must be GDB's, by the rules of the page "Walk a process".
Without optimisation every value must be printed.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HIDDEN = ("?", "<optimized out>")
MOST_MEMBERS, MOST_ELEMENTS = 16, 8
PROGRAMS = ["all_types.c", "typed.c", "numbers.c", "floats.c", "bits.c", "strings.c", "classes.cpp", "references.cpp",
            "values.rs", "plain.rs", "spinning.c"]
VERBOSE = "VERBOSE" in os.environ
CHARACTERS = ("char", "signed char", "unsigned char")


# ---- in GDB ----------------------------------------------------------------------------------------------------------

class Text:
    """A value of GDB's as the command prints values."""

    def __init__(self, gdb):
        self.gdb = gdb

    def character(self, number):
        return f"{number} '{chr(number)}'" if ord(" ") <= number < 0x7f else str(number)

    def is_character(self, kind):
        return kind.code in (self.gdb.TYPE_CODE_INT, self.gdb.TYPE_CODE_CHAR) and kind.name in CHARACTERS

    def quoted(self, text):
        escaped = text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        return '"' + "".join(chr(c) if ord(" ") <= c < 0x7f else f"\\x{c:02x}" for c in escaped) + '"'

    def behind(self, address):
        """Bytes up to a zero."""
        found = b""
        memory = self.gdb.selected_inferior()
        while not found.endswith(b"\0"):
            found += bytes(memory.read_memory(address + len(found), 1))
        return found[:-1]

    def of(self, value):
        gdb, kind = self.gdb, value.type.strip_typedefs().unqualified()
        code = kind.code
        if code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
            target = value.referenced_value()
            return f"@{int(target.address):#x}: " + self.of(target)
        if code == gdb.TYPE_CODE_BOOL:
            return "true" if int(value) else "false"
        if code == gdb.TYPE_CODE_ENUM:
            number = int(value)
            names = [field.name for field in kind.fields() if field.enumval == number]
            return last_name(names[0]) if names else str(number)
        if self.is_character(kind):
            return self.character(int(value))
        if code == gdb.TYPE_CODE_CHAR:
            return self.character(int(value))
        if code == gdb.TYPE_CODE_INT:
            return str(self.integer(value, kind))
        if code == gdb.TYPE_CODE_FLT:
            return f"<<{kind.sizeof}:{value}>>"
        if code == gdb.TYPE_CODE_PTR:
            return self.pointer(value, kind)
        if code == gdb.TYPE_CODE_ARRAY:
            return self.array(value, kind)
        if code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_UNION):
            return self.members(value, kind)
        raise NotImplementedError(str(kind))

    def integer(self, value, kind):
        """Of 16 bytes, Python's interface has the lower half only."""
        if kind.sizeof <= 8:
            return int(value)
        number = int(value.format_string(format="z"), 16)
        is_signed = "unsigned" not in kind.name and kind.name != "u128"
        return number - (1 << 128) if is_signed and number >> 127 else number

    def pointer(self, value, kind):
        text, target = f"{int(value) & (1 << 64) - 1:#x}", kind.target().strip_typedefs().unqualified()
        if int(value) and self.is_character(target):
            text += " " + self.quoted(self.behind(int(value)))
        return text

    def array(self, value, kind):
        first, last = kind.range()
        element = kind.target().strip_typedefs().unqualified()
        if self.is_character(element):
            data = bytes(int(value[i]) & 255 for i in range(first, last + 1))
            return self.quoted(data.split(b"\0")[0])
        parts = [self.of(value[i]) for i in range(first, min(last + 1, first + MOST_ELEMENTS))]
        return "{" + ", ".join(parts + ["..."] * (last + 1 - first > MOST_ELEMENTS)) + "}"

    def variant(self, value, kind):
        """Of Rust's enums with data: behind the number that tells variants apart, the last one is there."""
        field = kind.fields()[-1]
        text = self.of(value[field])
        return field.name + ("" if text == "{}" else text)

    def members(self, value, kind):
        parts = []
        if kind.fields() and kind.fields()[0].artificial and kind.fields()[0].name is None:
            return self.variant(value, kind)
        for field in kind.fields():
            if not hasattr(field, "bitpos"):
                continue  # static
            part = self.of(value[field])
            if field.is_base_class:
                if part == "{}":
                    continue
                parts.append(f"<{last_name(field.type.name)}> = {part}")
            else:
                parts.append(f"{field.name} = {part}" if field.name else part)
        return "{" + ", ".join(parts[:MOST_MEMBERS] + ["..."] * (len(parts) > MOST_MEMBERS)) + "}"


def last_name(name):
    """Without the scopes around it."""
    begin = depth = 0
    for i, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if depth == 0 and name[i:i + 2] == "::":
            begin = i + 2
    return name[begin:]


def in_gdb():
    import gdb
    text, found = Text(gdb), []
    frame = gdb.newest_frame()
    while frame is not None:
        frame.select()
        values = []
        try:
            block = frame.block()
            while block is not None and block.function is None:
                block = block.superblock
        except RuntimeError:
            block = None
        symbols = [symbol for symbol in block if symbol.is_argument] if block is not None else []
        for symbol in symbols:
            try:
                value = frame.read_var(symbol)
                shown = None if value.is_optimized_out else text.of(value)
            except NotImplementedError as other:
                shown = f"OTHER {other}"
            except (gdb.error, gdb.MemoryError) as error:
                shown = None if "optimized out" in str(error) or "not saved" in str(error) else f"OTHER {error}"
            values.append([symbol.name, shown])
        found.append([frame.name(), values])
        frame = frame.older()
    with open(os.environ["FRAMES_OF_GDB"], "w") as file:
        json.dump(found, file)


# ---- the test --------------------------------------------------------------------------------------------------------

errors, counts = [], {}


def count(key):
    counts[key] = counts.get(key, 0) + 1


def is_same_number(ours, size, theirs):
    theirs = theirs.replace("-nan(0x8000000000000)", "nan").replace("nan(0x8000000000000)", "nan")
    if "nan" in theirs:
        return "nan" in ours
    if size == "4":
        import struct
        return struct.pack("f", float(ours)) == struct.pack("f", float(theirs))
    if size == "16":
        import decimal
        a, b = decimal.Decimal(ours), decimal.Decimal(theirs)
        return abs(a - b) <= abs(b) * decimal.Decimal("1e-17")
    return float(ours) == float(theirs) and ours.startswith("-") == theirs.startswith("-")


def is_same(ours, theirs):
    pieces = re.split(r"<<(\d+):(.*?)>>", theirs)
    pattern = "".join(re.escape(piece) if i % 3 == 0 else r"([-+.\w]+)" if i % 3 == 1 else ""
                      for i, piece in enumerate(pieces))
    found = re.fullmatch(pattern, ours)
    numbers = [(pieces[i], pieces[i + 1]) for i in range(1, len(pieces), 3)]
    return found is not None and all(is_same_number(text, *number) for text, number in zip(found.groups(), numbers))


def compare(what, ours, theirs, whole):
    for name, values in ours:
        mates = [one for one in theirs if one[0] is not None and one[0].split("(")[0].split("<")[0] == name.split("<")[0]]
        if not mates:
            continue
        mate = mates[0]
        theirs.remove(mate)
        known = dict(mate[1])
        for argument, value in values:
            here = f"{what}: {name}: {argument}"
            known_value = known.get(argument)
            if whole and value in HIDDEN:
                errors.append(f"{here} is {value}, and GDB has {known_value}")
            elif argument not in known or (known_value or "").startswith("OTHER"):
                count("not compared")
                if VERBOSE:
                    print(f"{here} is {value}, not compared: {known_value}")
            elif value in HIDDEN:
                count("hidden" if known_value is None else "hidden, known to GDB")
                if known_value is not None and VERBOSE:
                    print(f"{here} is {value}, and GDB has {known_value}")
            elif known_value is None:
                count("unknown to GDB")
            elif is_same(value, known_value):
                count("as GDB")
            else:
                errors.append(f"{here} is {value}, and GDB has {known_value}")


def functions_of(command, pid):
    done = subprocess.run([command, "walk", "--arguments", "-i", "--json", str(pid)], capture_output=True, text=True,
                          timeout=120)
    if done.returncode:
        errors.append(f"walk: {done.returncode}: {done.stderr}")
    for line in done.stdout.splitlines():
        for frame in json.loads(line)["frames"]:
            for function in [*frame.get("inlined", []), frame]:
                if function.get("arguments"):
                    name = (function["function"] or "").split("(")[0]
                    yield name, [(one["name"], one["value"]) for one in function["arguments"]]


def check(command, folder, compiler, source, level):
    program = folder / f"{source}.{compiler}.{level}".replace("+", "p")
    options = ["-Awarnings", "-g", f"-Copt-level={level}"] if compiler == "rustc" else ["-w", "-g", f"-O{level}"]
    if "clang" in compiler and source.endswith(".cpp"):
        options.append("-fstandalone-debug")
    source = pathlib.Path(__file__).parent / "arguments" / source
    subprocess.run([compiler, *options, "-o", program, source], check=True, cwd=folder)
    process = subprocess.Popen([program, "one"], stdout=subprocess.PIPE, text=True)
    try:
        while not process.stdout.readline().startswith("ready"):
            pass
        frames = folder / "frames.json"
        frames.unlink(missing_ok=True)
        done = subprocess.run(
            ["gdb", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set print entry-values no", "-ex",
             "set print repeats unlimited", "-ex", "set width 0", "-p", str(process.pid), "-x", __file__],
            capture_output=True, text=True, timeout=240, env={**os.environ, "FRAMES_OF_GDB": str(frames)})
        if not frames.exists():
            errors.append(f"{program.name}: GDB: {done.stderr[-600:]}")
            return
        before = counts.get("as GDB", 0)
        compare(program.name, functions_of(command, process.pid), json.loads(frames.read_text()), level == 0)
        least = 6 if level == 0 else 4 if source.name == "spinning.c" else 0
        if counts.get("as GDB", 0) - before < least:
            errors.append(f"{program.name}: nearly nothing was compared")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def compilers_of(source, level):
    if source.endswith(".rs"):
        return ["rustc"]
    if source.endswith(".cpp"):
        return ["g++"] + ["clang++-19"] * (level == 0)
    return ["gcc"] + ["clang-19"] * (level == 0)


def main():
    if not shutil.which("gdb") or not shutil.which("gcc"):
        print("SKIPPED: gdb or gcc is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="windlass_arguments_") as folder:
        for source in sys.argv[2:] or PROGRAMS:
            for level in (0, 1, 2, 3):
                for compiler in filter(shutil.which, compilers_of(source, level)):
                    check(sys.argv[1], pathlib.Path(folder), compiler, source, level)
    for error in errors[:60]:
        print(error)
    print(", ".join(f"{key} {number}" for key, number in sorted(counts.items())) + f", errors {len(errors)}")
    sys.exit(bool(errors))


if "FRAMES_OF_GDB" in os.environ:
    in_gdb()
else:
    main()
