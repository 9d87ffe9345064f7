#!/usr/bin/python3
"""Writes debian/changelog from VERSION and CHANGELOG.md: debian/changelog.py [FILE]

Each released section becomes an entry. If the newest section is unreleased, it is the first entry: the version of VERSION, and
the date and commit of HEAD, for example 0.2.0+git20261126.d088b39.
"""
import datetime
import pathlib
import re
import subprocess
import sys
import textwrap

root = pathlib.Path(__file__).resolve().parent.parent
maintainer = re.search(r"^Maintainer: (.+)$", (root / "debian/control").read_text(), re.M).group(1)
released = (root / "VERSION").read_text().strip()


def git(*words):
    return subprocess.run(["git", "-C", root, *words], text=True, capture_output=True, check=True).stdout.strip()


def entries():
    text = (root / "CHANGELOG.md").read_text()
    for version, date, body in re.findall(r"^## (\S+) \((.+?)\)\n(.*?)(?=^## |\Z)", text, re.M | re.S):
        if date == "unreleased":
            time = datetime.datetime.fromisoformat(git("log", "-1", "--format=%cI")).astimezone(datetime.timezone.utc)
            version = f"{released}+git{time:%Y%m%d}.{git('rev-parse', '--short=7', 'HEAD')}"
        else:
            time = datetime.datetime.fromisoformat(date).replace(tzinfo=datetime.timezone.utc)
        yield version, time, re.findall(r"^- (.+?)$(?=\n)", body, re.M)


def plain(text):
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)


out = []
for version, time, changes in entries():
    lines = [textwrap.fill(plain(change), 78, initial_indent="  * ", subsequent_indent="    ", break_long_words=False,
                           break_on_hyphens=False) for change in changes]
    out.append(f"windlass ({version}) unstable; urgency=medium\n\n" + "\n".join(lines) +
               f"\n\n -- {maintainer}  {time:%a, %d %b %Y %H:%M:%S +0000}\n")
target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "debian/changelog"
target.write_text("\n".join(out))
print(re.match(r"windlass \((.+?)\)", out[0]).group(1))
