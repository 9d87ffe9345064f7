"""Chains of which every call is known, for samples: who calls whom, from which line, is written beside each call.

A caller's line is the one with the comment `# -> CALLEE`. Runs for so many seconds.
"""
import functools
import sys
import time


def spin(rounds):
    total = 0
    for i in range(rounds):
        total += i * i
    return total


def even(depth):
    if depth == 0:
        return spin(40)  # -> spin
    return odd(depth - 1)  # -> odd


def odd(depth):
    if depth == 0:
        return [x * x for x in range(30)]  # -> <listcomp>
    return even(depth - 1)  # -> even


def generated(rounds):
    for i in range(rounds):
        yield spin(i)  # -> spin


def through_generator():
    return sum(generated(12))  # -> generated


class Key:
    def __init__(self, value):
        self.value = value

    def __lt__(self, other):
        return spin(10) < 0  # -> spin


def through_c():
    return sorted([Key(3), Key(1), Key(2)])  # -> Key.__lt__ Key.__init__


def add(a, b):
    return spin(b)  # -> spin


def through_reduce():
    return functools.reduce(add, range(20))  # -> add


def fails(depth):
    if depth == 0:
        raise ValueError(spin(20))  # -> spin
    try:
        fails(depth - 1)  # -> fails
    finally:
        spin(5)  # -> spin


def through_exceptions():
    try:
        fails(6)  # -> fails
    except ValueError:
        return spin(9)  # -> spin


# Functions that are made, run and freed, so that one's code object is where another's was: of two kinds, whose names
# say which of the two their callee is.
def made_spin_a():
    return spin(60)  # -> spin


def made_spin_b():
    return spin(60)  # -> spin


def make(number):
    kind = "ab"[number % 2]
    space = {"made_spin_" + kind: globals()["made_spin_" + kind]}
    lines = "\n" * (number % 7)
    exec(f"{lines}def made_{kind}():\n  return made_spin_{kind}()\nmade_{kind}()\n", space)  # -> <module>


def work(seconds):
    number = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        even(15)  # -> even
        through_generator()  # -> through_generator
        through_c()  # -> through_c
        through_reduce()  # -> through_reduce
        through_exceptions()  # -> through_exceptions
        make(number)  # -> make
        number += 1


work(float(sys.argv[1]))  # -> work
