# Calls, objects, generators, exceptions, dictionaries and sorting, in loops that PyPy compiles. The argument: how much
# each round does.
import sys


class Point:
    def __init__(self, x):
        self.x = x

    def step(self, d):
        self.x = (self.x * 31 + d) % 1000003
        return self.x


class Odd(Exception):
    pass


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def pairs(n):
    for i in range(n):
        yield i, i * 7919 % 10007


def refuse(n):
    try:
        if n % 3 == 0:
            raise Odd(n)
        return n
    except Odd as odd:
        return -odd.args[0]


def count(n):
    seen = {}
    for i in range(n):
        key = str(i % 977)
        seen[key] = seen.get(key, 0) + i
    return sorted(seen.items(), key=lambda item: (-item[1], item[0]))[:3]


def round_of(scale):
    points = [Point(i) for i in range(20)]
    total = fib(10 + scale // 8)
    for i, value in pairs(200 * scale):
        total += points[i % 20].step(value) + refuse(i)
        if i % 7 == 0:
            points[i % 20] = Point(value)
    return total + len(count(200 * scale)) + sum(sorted(value for _, value in pairs(100 * scale)))


scale = int(sys.argv[1])
for _ in range(60):
    round_of(scale)
print("READY", flush=True)
while True:
    round_of(scale)
