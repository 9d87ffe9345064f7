"""Python that calls numpy, which calls Python, which calls numpy, and so on to C: mixed_numpy.py LIBRARY SECONDS."""
import ctypes
import sys
import time

import numpy

mixed_spin = ctypes.CDLL(sys.argv[1]).mixed_spin


def inner(x):
    mixed_spin()
    return x


def middle(row):
    return numpy.frompyfunc(inner, 1, 1)(row)  # the ufunc's loop, in C, calls inner


def key(row):
    return numpy.apply_along_axis(middle, 0, row)  # Python of numpy's


class Row:
    def __array__(self, dtype=None):
        return key(numpy.arange(1.0)).astype(float)


def outer(depth):
    if depth:
        return outer(depth - 1)
    return numpy.array(Row())  # numpy's C asks the object for itself


end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    outer(3)
