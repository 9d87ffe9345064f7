#!/usr/bin/python3
"""Small PDB files for fuzz_pdb.  make_pdb_seeds.py OUT PDB...

Writes each PDB file of LLVM's linker (tests/unit/formats/pdb makes some) again with blocks of 512 bytes, without the streams that names do
not need. A second file has the ids of inlined functions as MSVC's /LTCG writes them: taken from another module.
"""
import pathlib
import struct
import sys

BLOCK = 512
MAGIC = b"Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0"


def blocks_of(size, block):
    return (size + block - 1) // block


def read_streams(data):
    block, _, _, directory_size, _, directory_map = struct.unpack_from("<6I", data, len(MAGIC))
    numbers = struct.unpack_from(f"<{blocks_of(directory_size, block)}I", data, directory_map * block)
    directory = b"".join(data[n * block:(n + 1) * block] for n in numbers)[:directory_size]
    count, = struct.unpack_from("<I", directory)
    sizes = [0 if size == 0xffffffff else size for size in struct.unpack_from(f"<{count}I", directory, 4)]
    at, streams = 4 + 4 * count, []
    for size in sizes:
        numbers = struct.unpack_from(f"<{blocks_of(size, block)}I", directory, at)
        at += 4 * len(numbers)
        streams.append(b"".join(data[n * block:(n + 1) * block] for n in numbers)[:size])
    return streams


def write_streams(streams):
    body, blocks = [], []
    for stream in streams:
        numbers = []
        for at in range(0, len(stream), BLOCK):
            numbers.append(3 + len(body))
            body.append(stream[at:at + BLOCK].ljust(BLOCK, b"\0"))
        blocks += numbers
    directory = struct.pack(f"<I{len(streams)}I", len(streams), *map(len, streams)) + struct.pack(f"<{len(blocks)}I", *blocks)
    first = 3 + len(body)
    numbers = range(first, first + blocks_of(len(directory), BLOCK))
    padded = directory.ljust(len(numbers) * BLOCK, b"\0")
    map_block = first + len(numbers)
    super_block = MAGIC + struct.pack("<6I", BLOCK, 1, map_block + 1, len(directory), 0, map_block)
    return (super_block.ljust(3 * BLOCK, b"\0") + b"".join(body) + padded +
            struct.pack(f"<{len(numbers)}I", *numbers).ljust(BLOCK, b"\0"))


def modules_of(dbi):
    """(stream, size of the symbols, size of the lines, name, where the size of the lines is) of each module."""
    sizes = struct.unpack_from("<7I", dbi, 24)
    at, modules = 64, []
    while at < 64 + sizes[0]:
        stream, symbols, _, lines = struct.unpack_from("<2xH3I", dbi, at + 32)
        end = dbi.index(b"\0", at + 64)
        modules.append((stream, symbols, lines, dbi[at + 64:end], at + 44))
        at = (dbi.index(b"\0", end + 1) + 4) & ~3
    return modules


def import_ids(streams):
    """Makes the first inlined call one of a function that its own module gives to others."""
    dbi = bytearray(streams[3])
    strings = next(i for i, stream in enumerate(streams) if stream[:4] == b"\xfe\xef\xfe\xef")
    for stream, symbols, lines, name, lines_at in modules_of(dbi):
        if stream == 0xffff:
            continue
        text = bytearray(streams[stream])
        site = next((at for at in range(4, symbols - 16, 4) if text[at + 2:at + 4] == b"\x4d\x11"), None)
        if site is None:
            continue
        inlinee, = struct.unpack_from("<I", text, site + 12)
        struct.pack_into("<I", text, site + 12, 0x80000000)
        more = struct.pack("<5I", 0xf7, 12, len(streams[strings]) - 12, 1, 0x1234) + struct.pack("<4I", 0xf8, 8, 0x1234, inlinee)
        streams[stream] = bytes(text[:symbols + lines] + more + text[symbols + lines:])
        struct.pack_into("<I", dbi, lines_at, lines + len(more))
        streams[strings] += name.lower() + b"\0"
        streams[3] = bytes(dbi)
        return True
    return False


def without_unused(streams):
    globals_stream, = struct.unpack_from("<H", streams[3], 12)
    return [b"" if i in (0, globals_stream) else stream for i, stream in enumerate(streams)]


out = pathlib.Path(sys.argv[1])
for path in map(pathlib.Path, sys.argv[2:]):
    streams = without_unused(read_streams(path.read_bytes()))
    (out / path.stem).write_bytes(write_streams(streams))
    if import_ids(streams):
        (out / f"{path.stem}-imports").write_bytes(write_streams(streams))
