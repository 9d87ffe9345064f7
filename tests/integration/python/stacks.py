"""Threads that stand still at the bottom of known stacks; prints what Python itself says of each, then READY, and waits.

A line for each frame, innermost first: thread, qualified name (before 3.11 the name), file, line.
"""
import asyncio
import ctypes
import functools
import os
import sys
import threading
import time

standing = threading.Semaphore(0)
never = threading.Lock()
never.acquire()


def stand():
    standing.release()
    never.acquire()


def recursion(depth=200):
    if depth:
        return recursion(depth - 1)
    stand()


def generators():
    def inner():
        yield 1
        stand()
        yield 2

    def outer():
        yield from inner()

    for _ in outer():
        pass


def coroutines():
    async def innermost():
        stand()

    async def middle():
        await innermost()

    async def main():
        await asyncio.gather(middle())

    asyncio.run(main())


class Ordered:
    def __init__(self, stands):
        self.stands = stands

    def __lt__(self, other):
        if self.stands:
            stand()
        return False

    @property
    def key(self):
        return self


def c_callbacks():
    def add(so_far, one):
        callback(one)
        return so_far

    def called_by_c(number):
        sorted([Ordered(False), Ordered(number == 3)], key=lambda it: it.key)
        return 0

    callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(called_by_c)
    functools.reduce(add, [1, 2, 3], 0)


def exceptions():
    try:
        raise ValueError("first")
    except ValueError:
        try:
            raise KeyError("second")
        finally:
            stand()


def destructors():
    class Closed:
        def __del__(self):
            stand()

    def leaves():
        closed = Closed()
        assert closed

    leaves()


def comprehensions():
    class Context:
        def __enter__(self):
            return [stand() if i == 2 else i for i in range(3)]

        def __exit__(self, *_):
            pass

    with Context():
        pass


def écriture_日本():
    exec("def made():\n\n\n  stand()\n\nmade()\n", {"stand": stand})


def decorated():
    @functools.lru_cache(maxsize=None)
    def cached(number):
        return stand() if number == 0 else cached(number - 1)

    cached(5)


def long_function():
    total = 0
    for i in range(3):
        total += (
            i * 2
            + i
        )
    values = {
        "a": total,
        "b": stand(),
    }
    return values


def text_of(frame):
    code = frame.f_code
    return f"{getattr(code, 'co_qualname', code.co_name)} {os.path.abspath(code.co_filename)} {frame.f_lineno}"


def main():
    ways = [recursion, generators, coroutines, c_callbacks, exceptions, destructors, comprehensions, écriture_日本,
            decorated, long_function]
    threads = [threading.Thread(target=way, daemon=True) for way in ways]
    for thread in threads:
        thread.start()
        standing.acquire()
    time.sleep(0.2)
    frames = sys._current_frames()
    for thread in threads:
        frame = frames[thread.ident]
        while frame is not None:
            print(thread.native_id, text_of(frame))
            frame = frame.f_back
    print("READY", flush=True)
    time.sleep(1000)


sys.stdout.reconfigure(encoding="utf-8")
main()
