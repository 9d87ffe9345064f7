#!/usr/bin/python3
"""Puts a small C# program into a copy of a single-file .NET program, so that it runs on that program's CoreCLR.

    rebundle.py PROGRAM ASSEMBLY NEW_PROGRAM       the exit status of NEW_PROGRAM is Main's

PROGRAM is azmcp of npm's @azure/mcp-linux-x64; ASSEMBLY is mcs's. The sources must mention System.Private.CoreLib somewhere
(`namespace System.Private.CoreLib { class Dummy {} }`): that puts the name into the assembly's string heap, and the reference to
mscorlib is pointed at it. CoreLib is trimmed: print through an unhandled exception, return results as the exit status. The
assembly must not be larger than the azmcp.dll that it replaces (a few tens of KB).
"""
import os
import struct
import sys

# What the .NET host writes in front of a bundle: the header's offset stands in the 8 bytes before this signature.
SIGNATURE = bytes.fromhex("8b1202b96a612038727b930214d7a03213f5b9e6efae3318ee3b2dce24b36aae")
CORELIB_TOKEN = bytes.fromhex("7cec85d7bea7798e")
MSCORLIB_TOKEN = bytes.fromhex("b77a5c561934e089")


def bundle_entries(image):
    """[(offset, size, compressed size, place of these three in the manifest, name)] (bundle manifest, version 6)."""
    at = struct.unpack_from("<q", image, image.find(SIGNATURE) - 8)[0]
    count = struct.unpack_from("<IIi", image, at)[2]
    at += 12

    def text(at):
        length = shift = 0
        while True:
            byte = image[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return image[at:at + length].decode(), at + length

    _, at = text(at)
    at += 40  # deps.json, runtimeconfig.json, flags
    entries = []
    for _ in range(count):
        offset, size, compressed = struct.unpack_from("<qqq", image, at)
        place, at = at, at + 25
        name, at = text(at)
        entries.append((offset, size, compressed, place, name))
    return entries


def point_at_corelib(assembly):
    """Renames the assembly's reference to mscorlib (ECMA-335 II.24: metadata root, #Strings, #~, AssemblyRef)."""
    root = assembly.find(b"BSJB")
    version_length = struct.unpack_from("<I", assembly, root + 12)[0]
    at = root + 16 + version_length
    streams, at = struct.unpack_from("<H", assembly, at + 2)[0], at + 4
    place = {}
    for _ in range(streams):
        offset, size = struct.unpack_from("<II", assembly, at)
        end = assembly.index(b"\0", at + 8)
        place[bytes(assembly[at + 8:end])] = (root + offset, size)
        at = at + 8 + (end - at - 8) // 4 * 4 + 4
    strings, strings_size = place[b"#Strings"]
    heap = assembly[strings:strings + strings_size]
    new = heap.find(b"\0System.Private.CoreLib\0") + 1
    old = heap.find(b"\0mscorlib\0") + 1
    if not new or not old:
        sys.exit("the assembly's strings lack System.Private.CoreLib or mscorlib: see the top of this file")
    tables, tables_size = place[b"#~"]
    row = assembly.find(struct.pack("<HHHHI", 4, 0, 0, 0, 0), tables, tables + tables_size)
    if row < 0 or struct.unpack_from("<H", assembly, row + 14)[0] != old:
        sys.exit("no reference to mscorlib 4.0.0.0 found")
    struct.pack_into("<H", assembly, row + 14, new)
    token = assembly.find(MSCORLIB_TOKEN)
    assembly[token:token + 8] = CORELIB_TOKEN


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    image = bytearray(open(sys.argv[1], "rb").read())
    assembly = bytearray(open(sys.argv[2], "rb").read())
    point_at_corelib(assembly)
    offset, size, compressed, place, _ = next(e for e in bundle_entries(image) if e[4] == "azmcp.dll")
    if compressed or len(assembly) > size:
        sys.exit(f"azmcp.dll has {size} bytes here ({compressed} compressed); the assembly has {len(assembly)}")
    image[offset:offset + len(assembly)] = assembly
    struct.pack_into("<q", image, place + 8, len(assembly))
    with open(sys.argv[3], "wb") as out:
        out.write(image)
    os.chmod(sys.argv[3], 0o755)


main()
