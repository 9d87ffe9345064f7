#!/usr/bin/python3
"""big_profile.py IN OUT MEGABYTES [--unpacked]: a large pprof file of the stacks of a recording.

The samples are repeated. Each repetition gives the innermost frame another address, so that no two stacks are equal. OUT
has about MEGABYTES, as gzip has packed them; with --unpacked, before gzip has.
"""
import gzip
import sys
import zlib

from leb128 import uleb128

SAMPLE, LOCATION, VARINT, BYTES = 2, 4, 0, 2


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """The number, the value or bytes, and the bytes with the tag, of each field."""
    at = 0
    while at < len(data):
        begin = at
        tag, at = varint(data, at)
        if tag & 7 == VARINT:
            value, at = varint(data, at)
        elif tag & 7 == BYTES:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            raise SystemExit(f"big_profile: a field of wire type {tag & 7} at byte {begin}")
        yield tag >> 3, value, data[begin:at]


def message(number, body):
    return uleb128(number << 3 | BYTES) + uleb128(len(body)) + body


class Repeater:
    def __init__(self, data):
        self.rest, self.samples, self.locations = [], [], {}
        for number, value, whole in fields(data):
            if number == SAMPLE:
                self.samples.append(self.parts(value))
            else:
                self.rest.append(whole)
            if number == LOCATION:
                self.locations[next(v for n, v, _ in fields(value) if n == 1)] = value
        self.next_id = max(self.locations) + 1
        self.copies = {}

    @staticmethod
    def parts(sample):
        """The innermost location, the coded ids of the others, and the other fields."""
        ids = next((value for number, value, _ in fields(sample) if number == 1), b"")
        first, at = varint(ids, 0) if ids else (0, 0)
        return first, ids[at:], b"".join(whole for number, _, whole in fields(sample) if number != 1)

    def copy_of(self, location, repetition, out):
        if repetition == 0 or location == 0:
            return location
        key = location, repetition
        if key not in self.copies:
            self.copies[key] = self.next_id
            body = b"".join(uleb128(n << 3) + uleb128({1: self.next_id, 3: v + repetition}.get(n, v)) if isinstance(v, int)
                            else whole for n, v, whole in fields(self.locations[location]))
            out.append(message(LOCATION, body))
            self.next_id += 1
        return self.copies[key]

    def repetition(self, number):
        out = []
        for leaf, others, rest in self.samples:
            ids = uleb128(self.copy_of(leaf, number, out)) + others if leaf else b""
            out.append(message(SAMPLE, message(1, ids) + rest))
        return b"".join(out)


def main():
    source, target, size = sys.argv[1], sys.argv[2], int(sys.argv[3]) * 1000 * 1000
    unpacked = "--unpacked" in sys.argv[4:]
    with open(source, "rb") as file:
        data = file.read()
    repeater = Repeater(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    packer = zlib.compressobj(4, zlib.DEFLATED, 15 + 16)
    written = plain = number = 0
    with open(target, "wb") as file:
        piece = b"".join(repeater.rest)
        while (plain if unpacked else written) < size:
            plain += len(piece)
            written += file.write(packer.compress(piece))
            piece = repeater.repetition(number)
            number += 1
        written += file.write(packer.flush())
    print(f"{target}: {number * len(repeater.samples)} samples, {written} bytes, {plain} unpacked")


main()
