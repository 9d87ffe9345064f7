#!/usr/bin/python3
"""Holds every #include of src/, bpf/ and include/ to the order in a file of layers.

check_layers.py ROOT LAYERS

A line of LAYERS is one layer: folders, or single files, that stand on the lines before it and not on each other. Of all that name
a file the longest does. Includes are written from src/, include/ or bpf/ on, never from the including file's folder.

A line "FILE includes HEADER  # reason" excepts one include of a later line; once it is none any more, the exception is an error.
Lines that begin with # and empty ones are for people.

Prints what is wrong, a line each, and how much was looked at. Exit status 1 if something is wrong.
"""
import pathlib
import re
import sys

ROOTS = ("src", "include", "bpf")
SOURCES = re.compile(r"\.(h|c|cpp)(\.in)?$")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.MULTILINE)
EXCEPTION = re.compile(r"^(\S+) includes (\S+)\s+# *(\S.*)$")


class Layers:
    def __init__(self, path):
        self.places, self.excepted, self.wrong = {}, {}, []  # name -> layer; (file, header) -> line number
        layer = 0
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            if exception := EXCEPTION.match(line):
                self.excepted[exception[1], exception[2]] = number
                continue
            if "#" in line or " includes " in line:
                self.wrong.append(f"{path.name}:{number}: neither a layer nor 'FILE includes HEADER  # reason': {line}")
                continue
            layer += 1
            for name in line.split():
                if name in self.places:
                    self.wrong.append(f"{path.name}:{number}: {name} stands here twice")
                self.places.setdefault(name, layer)

    def name_of(self, file):
        """The folder or file of LAYERS that `file` belongs to, or None."""
        return next((str(p) for p in (pathlib.PurePath(file), *pathlib.PurePath(file).parents) if str(p) in self.places), None)


def resolve(root, quote, name):
    """What an include names, from `root` on; None: a header of the system."""
    if name.endswith(".skel.h"):  # generated from the BPF program of that name
        return f"bpf/{name}"
    found = next((f"{start}/{name}" for start in ROOTS if (root / start / name).is_file()), None)
    if found is None and quote == '"':
        raise FileNotFoundError(name)
    return found


def main():
    root, path = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    layers = Layers(path)
    wrong, used, needed, includes = layers.wrong, set(), set(), 0
    files = sorted(str(p.relative_to(root)) for start in ROOTS for p in (root / start).rglob("*") if SOURCES.search(p.name))
    for file in files:
        mine = layers.name_of(file)
        if mine is None:
            wrong.append(f"{file} is in no layer of {path.name}")
            continue
        used.add(mine)
        for quote, name in INCLUDE.findall((root / file).read_text()):
            try:
                header = resolve(root, quote, name)
            except FileNotFoundError:
                wrong.append(f'{file} includes "{name}", which is in none of {", ".join(ROOTS)}')
                continue
            theirs = header and layers.name_of(header)
            if header is None or theirs is None:  # of the system; or reported above, as a file
                continue
            includes += 1
            if theirs == mine or layers.places[theirs] < layers.places[mine]:
                continue
            needed.add((file, header))
            if (file, header) not in layers.excepted:
                where = "beside" if layers.places[theirs] == layers.places[mine] else "after"
                wrong.append(f"{file} includes {header}: {theirs} stands {where} {mine}")
    wrong += [f"{path.name}: nothing is in {name}" for name in layers.places if name not in used]
    wrong += [f"{path.name}:{number}: no longer needed: {' includes '.join(pair)}"
              for pair, number in layers.excepted.items() if pair not in needed]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{includes} includes of {len(files)} files, {len(layers.excepted)} exceptions, {len(wrong)} errors")
    if includes == 0:
        print("nothing was looked at")
    return 1 if wrong or includes == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
