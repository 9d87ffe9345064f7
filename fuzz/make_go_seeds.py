#!/usr/bin/python3
"""Writes the seeds of fuzz_go into a folder: small ELF files with a table of functions of each of Go's forms.

make_go_seeds.py FOLDER; fuzz/pack.sh fuzz_go FOLDER/*
"""
import pathlib
import struct
import sys

TEXT, TABLE, DATA = 0x401000, 0x402000, 0x403000
SWITCH = bytes.fromhex(  # runtime.systemstack, as far as it matters
    "64488b0425f8ffffff" "488b5830" "488b13" "488b6238" "ff17"
    "64488b0425f8ffffff" "488b5830" "488b83b8000000" "488b6038" "c3")
ALIGN = bytes.fromhex("4989e4" "4883e4f0" "ffd0" "4c89e4" "c3")  # mov r12, rsp; and rsp, -16; call rax; ...
FRAME = bytes.fromhex("4883ec18" "48896c2410" "488d6c2410" "e800000000" "488b6c2410" "4883c418" "c3")
# Name, code, bytes on the stack by length of code.
FUNCTIONS = [("runtime.systemstack", SWITCH, [(0, len(SWITCH))]), ("runtime.mcall", SWITCH, [(0, len(SWITCH))]),
             ("runtime.nanotime1", ALIGN, [(0, len(ALIGN))]), ("runtime.sigreturn", b"\x0f\x05", [(0, 2)]),
             ("runtime.goexit", b"\x90\xc3", [(0, 2)]),
             ("main.main", FRAME, [(0, 4), (24, len(FRAME) - 5), (0, 1)])]
FORMS = {"1.2": 0xfffffffb, "1.16": 0xfffffffa, "1.18": 0xfffffff0, "1.20": 0xfffffff1}


def number(value):
    out = bytearray()
    while value > 0x7f:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def values(runs):
    out, last = b"", -1
    for value, size in runs:
        change = value - last
        out += number(change << 1 if change >= 0 else ~(change << 1)) + number(size)
        last = value
    return out + b"\0"


RECORD = 96  # room for a function's


def table_of(form, names_at=0, lists_at=0):
    """The table, and the tree of inlined calls. Of form 1.2 everything counts from the table: names and lists, too."""
    first, has_parts, has_line = form == "1.2", form != "1.2", form == "1.20"
    offsets = form in ("1.18", "1.20")
    begins = [TEXT + 64 * i for i in range(len(FUNCTIONS) + 1)]
    lists, names, tree = b"\0", b"\0", struct.pack("<iiii", 0, 1, 4, 3) if has_line else struct.pack("<iiiii", -1, 0, 3, 1, 4)
    files, units = b"\0main.go\0", struct.pack("<I", 1)
    width = 4 if offsets else 8
    index_size = (2 * len(FUNCTIONS) + 1) * width
    base = 8 + 8 if first else 0  # what functions count from, in 1.2 the table itself
    index, records = b"", b""
    for i, (name, _, runs) in enumerate(FUNCTIONS):
        size = sum(run[1] for run in runs)
        at = (base + index_size + 4 + 7) // 8 * 8 + i * RECORD
        index += struct.pack("<II" if offsets else "<QQ", begins[i] - (TEXT if offsets else 0), at)
        fields = [names_at + len(names), 0, 0]
        names += name.encode() + b"\0"
        for run in (runs, [(0, size)], [(7, size)]):
            fields.append(lists_at + len(lists))
            lists += values(run)
        inlined = lists_at + len(lists)
        lists += values([(-1, 1), (0, size - 1)])
        fields += [3] + ([0] if has_parts else []) + ([5] if has_line else [])
        record = struct.pack("<I" if offsets else "<Q", begins[i] - (TEXT if offsets else 0))
        record += struct.pack("<%dI" % len(fields), *fields) + bytes([0, 0, 0, 4]) + struct.pack("<III", 0, 0, inlined)
        if not offsets:
            record = record.ljust((len(record) + 7) // 8 * 8, b"\0")
        record += struct.pack("<4I", *[0xffffffff] * 3, 0) if offsets else struct.pack("<4Q", 0, 0, 0, DATA + 0x200)
        records += record.ljust(RECORD, b"\0")
    index += struct.pack("<I" if offsets else "<Q", begins[-1] - (TEXT if offsets else 0))
    head = struct.pack("<IHBB", FORMS[form], 0, 1, 8) + struct.pack("<Q", len(FUNCTIONS))
    if first:
        records_at = (base + index_size + 4 + 7) // 8 * 8
        names_begin = records_at + len(records)
        lists_begin = names_begin + len(names)
        if names_at == 0:
            return table_of(form, names_begin, lists_begin)
        files_at = lists_begin + len(lists)
        body = (head + index + struct.pack("<I", files_at)).ljust(records_at, b"\0") + records + names + lists
        return body + struct.pack("<II", 2, files_at + 8) + files[1:], tree
    index = (index + bytes(4)).ljust((index_size + 4 + 7) // 8 * 8, b"\0")
    parts, at = [], 16 + 8 * (1 + offsets + 5)
    for part in (names, units, files, lists, index + records):
        parts.append(at)
        at += (len(part) + 7) // 8 * 8
    head += struct.pack("<Q", 1) + (struct.pack("<Q", TEXT) if offsets else b"") + struct.pack("<5Q", *parts)
    body = head
    for place, part in zip(parts, (names, units, files, lists, index + records)):
        body = body.ljust(place, b"\0") + part
    return body, tree


def elf_of(form):
    text = b"".join(code.ljust(64, b"\xcc") for _, code, _ in FUNCTIONS)
    table, tree = table_of(form)
    module = [0] * 41
    module[0], module[22], module[38], module[40] = TABLE, TEXT, DATA + 0x200, DATA + 0x200
    data = struct.pack("<41Q", *module).ljust(0x200, b"\0") + tree
    names = b"\0.text\0.gopclntab\0.data\0.shstrtab\0"
    contents = [(b".text", 1, 6, TEXT, text), (b".gopclntab", 1, 2, TABLE, table), (b".data", 1, 3, DATA, data),
                (b".shstrtab", 3, 0, 0, names)]
    body, headers, segments = bytearray(64 + 3 * 56), [bytes(64)], b""
    for name, kind, flags, address, bytes_ in contents:
        at = len(body)
        body += bytes_.ljust((len(bytes_) + 7) // 8 * 8, b"\0")
        headers.append(struct.pack("<IIQQQQIIQQ", names.index(name), kind, flags, address, at, len(bytes_), 0, 0, 8, 0))
        if address:
            mode = 5 if flags & 4 else 6 if flags & 1 else 4
            segments += struct.pack("<IIQQQQQQ", 1, mode, at, address, address, len(bytes_), len(bytes_), 1)
    section_at = len(body)
    body[64:64 + len(segments)] = segments
    body[:64] = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, TEXT, 64, section_at, 0, 64,
                                                                56, 3, 64, len(headers), len(headers) - 1)
    return bytes(body) + b"".join(headers)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for form in FORMS:
        (folder / ("go" + form)).write_bytes(elf_of(form))
