#!/usr/bin/python3
"""random_profile.py OUT SAMPLES STACKS [SEED]: a pprof file of random deep stacks.

Each stack has up to 13 locations of its own, and shares up to 70 outer ones with other stacks. Samples choose among the
stacks at random. So stacks repeat, but rarely one after another. 1300000 samples of 372000 stacks make a file of 52 MB,
237 MB unpacked.
"""
import random
import sys
import zlib

from leb128 import uleb128

VARINT, BYTES = 0, 2
LOCATIONS, FUNCTIONS, THREADS, TRUNKS = 120_000, 30_000, 64, 2_000


def number(field, value):
    return uleb128(field << 3 | VARINT) + uleb128(value)


def message(field, body):
    return uleb128(field << 3 | BYTES) + uleb128(len(body)) + body


def stacks(many, chance):
    """Of each stack the coded ids of its locations, innermost first, and its thread."""
    ids = [uleb128(i + 1) for i in range(LOCATIONS)]
    trunks, made = [[ids[0]]], []
    while len(trunks) < TRUNKS:
        shared = chance.choice(trunks[-40:])
        trunks.append(chance.choices(ids, k=chance.randint(1, 11)) + shared[-chance.randint(40, 58):])
    for _ in range(many):
        which = chance.randrange(TRUNKS // 10, TRUNKS)
        outer = trunks[which][chance.randint(0, 12):]
        made.append((b"".join(chance.choices(ids, k=chance.randint(1, 13)) + outer), which % THREADS))
    return made


def head():
    strings = ["", "samples", "count", "cpu", "nanoseconds", "/usr/bin/workload", "tid", "comm"]
    out = [message(1, number(1, 1) + number(2, 2)), message(1, number(1, 3) + number(2, 4)),
           message(11, number(1, 3) + number(2, 4)), number(12, 1_001_001),
           message(3, number(1, 1) + number(2, 0x1000) + number(3, 0x10000000) + number(5, 5))]
    strings += [f"worker {i}" for i in range(THREADS)]
    for i in range(FUNCTIONS):
        out.append(message(5, number(1, i + 1) + number(2, len(strings)) + number(3, len(strings))))
        strings.append(f"work::Function{i}::run(std::vector<long> const&, int)")
    for i in range(LOCATIONS):
        line = number(1, i % FUNCTIONS + 1) + number(2, i % 997 + 1)
        out.append(message(4, number(1, i + 1) + number(2, 1) + number(3, 0x1000 + 16 * i) + message(4, line)))
    return b"".join(out + [message(6, text.encode()) for text in strings])


def main():
    target, samples, many = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
    made = stacks(many, chance)
    threads = [message(3, number(1, 6) + number(3, 100 + i)) + message(3, number(1, 7) + number(2, 8 + i))
               for i in range(THREADS)]
    packer = zlib.compressobj(4, zlib.DEFLATED, 15 + 16)
    plain = written = 0
    piece = [head()]
    with open(target, "wb") as file:
        for i in range(samples):
            count = chance.randint(1, 3)
            values = message(2, uleb128(count) + uleb128(count * 1_001_001))
            ids, thread = chance.choice(made)
            piece.append(message(2, message(1, ids) + values + threads[thread]))
            if len(piece) == 10_000 or i + 1 == samples:
                bytes_ = b"".join(piece)
                plain += len(bytes_)
                written += file.write(packer.compress(bytes_))
                piece = []
        written += file.write(packer.flush())
    print(f"{target}: {samples} samples, {written} bytes, {plain} unpacked")


main()
