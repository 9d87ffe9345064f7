#!/usr/bin/python3
"""A profile whose sums are known, as pprof.  make_profile.py FILE

Written here field by field (github.com/google/pprof, proto/profile.proto): no reader or writer of the project is behind it.
"""
import gzip
import sys

# Function names; each has an address of its own in one module.
MAIN, WORK, LEAF, HOSTILE, LONG = b"main", b"work(int)", b"leaf", b"\x1b[31m\xff\"</script>\n\xe2\x80\xae", b"x" * 5000
NAMES = [MAIN, WORK, LEAF, HOSTILE, LONG]
# (stack with the innermost function first, samples, pid, thread's name, request)
SAMPLES = [([LEAF, WORK, MAIN], 40, 10, b"a", b"one"), ([LEAF, WORK, WORK, MAIN], 20, 10, b"a", b"two"),
           ([WORK, MAIN], 15, 10, b"b", b"one"), ([HOSTILE, MAIN], 10, 11, b"b", b"two"), ([LONG, MAIN], 5, 11, b"b", b"two")]
PERIOD = 1000000


def varint(number):
    text = b""
    while number > 0x7f:
        text += bytes([number & 0x7f | 0x80])
        number >>= 7
    return text + bytes([number])


def field(number, value):
    """A number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def made(samples=SAMPLES):
    strings = [b""]

    def string(text):
        if text not in strings:
            strings.append(text)
        return strings.index(text)

    def label(key, value):
        return field(3, field(1, string(key)) + (field(3, value) if isinstance(value, int) else field(2, string(value))))

    cpu = field(1, string(b"cpu")) + field(2, string(b"nanoseconds"))
    body = field(1, field(1, string(b"samples")) + field(2, string(b"count"))) + field(1, cpu)
    for stack, count, pid, thread, request in samples:
        one = b"".join(field(1, 1 + NAMES.index(name)) for name in stack)
        one += field(2, count) + field(2, count * PERIOD)
        one += label(b"pid", pid) + label(b"tid", pid) + label(b"comm", thread) + label(b"request", request)
        body += field(2, one)
    body += field(3, field(1, 1) + field(2, 0x1000) + field(3, 0x9000) + field(5, string(b"/no/such/program")))
    for i, name in enumerate(NAMES, 1):
        body += field(4, field(1, i) + field(2, 1) + field(3, 0x1000 + 16 * i) + field(4, field(1, i) + field(2, 7)))
        body += field(5, field(1, i) + field(2, string(name)) + field(3, string(name)) + field(4, string(b"a.c")))
    body += field(9, 10**18) + field(10, 10**9) + field(11, cpu) + field(12, PERIOD)
    return body + b"".join(field(6, text) for text in strings)


def write(path, samples=SAMPLES):
    with gzip.open(path, "wb") as file:
        file.write(made(samples))


if __name__ == "__main__":
    write(sys.argv[1])
