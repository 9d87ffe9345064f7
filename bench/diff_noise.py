#!/usr/bin/python3
"""Does `report --diff` stay silent where nothing changed, and does it see what did?

diff_noise.py record COMMAND-OF-WINDLASS FOLDER RUNS -- PROGRAM...: records PROGRAM so often, into FOLDER/N.pb.gz.
diff_noise.py silent COMMAND-OF-WINDLASS FILE...: compares each two files, which are of one program. Prints how many of
the pairs have a function that is said to differ.
diff_noise.py seen COMMAND-OF-WINDLASS FUNCTION BEFORE... -- AFTER...: compares 1, 2, 4... merged files of both sides,
and says in how many of 20 draws FUNCTION is said to differ, by number of samples.
"""
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def difference(windlass, a, b):
    """The first object, and those of the functions that differ by themselves or with their callees."""
    lines = map(json.loads, run(windlass, "report", "--diff", "--json", a, b).splitlines())
    head = next(lines)
    return head, [one for one in lines if one["self"]["differs"] or one["total"]["differs"]]


def record(windlass, folder, runs, *program):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    for i in range(int(runs)):
        run(windlass, "record", "-F", "997", "-o", f"{folder}/{i}.pb.gz", *program)


def silent(windlass, *files):
    pairs = list(itertools.combinations(files, 2))
    loud, names, noises = 0, {}, []
    for a, b in pairs:
        head, found = difference(windlass, a, b)
        loud += bool(found)
        noises.append(head["noise"])
        for one in found:
            names[one["name"]] = names.get(one["name"], 0) + 1
    print(f"{loud} of {len(pairs)} pairs have a difference; noise {sorted(noises)[len(noises) // 2]:.3f} (median)")
    for name, times in sorted(names.items(), key=lambda entry: -entry[1])[:5]:
        print(f"  {times} times: {name}")
    return 0 if loud <= 0.05 * len(pairs) else 1


def seen(windlass, function, *files):
    middle = files.index("--")
    before, after = files[:middle], files[middle + 1:]
    draws, chosen = 20, random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        size = 1
        while size <= min(len(before), len(after)):
            hits = others = samples = 0
            for _ in range(draws):
                sides = []
                for name, of in (("a", before), ("b", after)):
                    sides.append(f"{folder}/{name}.pb.gz")
                    merge(windlass, chosen.sample(of, size), sides[-1])
                head, found = difference(windlass, *sides)
                samples += head["a"]["samples"]
                hits += any(one["name"] == function and one["self"]["differs"] for one in found)
                others += any(one["name"] != function and one["self"]["differs"] for one in found)
            print(f"{samples // draws:9} samples a side: {function} in {hits} of {draws}, another function in {others}")
            size *= 2
    return 0


def merge(windlass, files, to):
    """Several recordings as one pprof file: fields that occur again, with ids of their own, need a merger."""
    run("go", "tool", "pprof", "-proto", "-symbolize=none", "-output", to, *files)


if __name__ == "__main__":
    what, arguments = sys.argv[1], sys.argv[2:]
    sys.exit({"record": record, "silent": silent, "seen": seen}[what](*arguments) or 0)
