#!/usr/bin/python3
"""Do all links hold?  check_links.py ROOT

Of every page (README, CONTRIBUTING, docs/, the READMEs of folders): a relative link leads to a file that is there, and an anchor to
a heading of that file, by the name that hosts of repositories give it. Of all other sources: a page that is named (docs/how-to/x.md)
is there.
"""
import pathlib
import re
import sys

FOLDERS = ("bench", "bpf", "cmake", "docs", "examples", "fuzz", "include", "site", "src", "tests", ".ci", ".github")
SOURCES = {".c", ".h", ".cpp", ".py", ".sh", ".js", ".cmake", ".txt", ".list", ".yml", ".json", ".in", ""}
# Made-up trees and names in examples.
LEFT_OUT = re.compile(r"tests/(test_)?check_[^/]*$|/__pycache__/")

FENCED = re.compile(r"^ *(```|~~~).*?^ *\1[^\n]*$|<!--.*?-->", re.S | re.M)
CODE_OR_LINK = re.compile(r"`[^`\n]*`|\[(?:[^\[\]`]|`[^`]*`|\[[^\]]*\])*\]\(([^()\s]+)\)|^\[[^\]]+\]: +(\S+)$", re.M)
HEADING = re.compile(r"^#{1,6} +(.*?) *#*$", re.M)
EXPLICIT = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")
# Not docs/design/, which is .NET's.
PAGE_NAME = re.compile(r"(?<![\w/.-])docs/(?:(?:tutorial|how-to|reference|explanation|figures)/)?[\w-]+\.md\b")


def without_blocks(text):
    return FENCED.sub(lambda match: "\n" * match.group().count("\n"), text)


def anchors_of(text):
    text = without_blocks(text)
    found = set(EXPLICIT.findall(text))
    count = {}
    for heading in HEADING.findall(text):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")
        number = count[name] = count.get(name, -1) + 1
        found.add(f"{name}-{number}" if number else name)
    return found


class Tree:
    def __init__(self, root):
        self.root, self.links, self.mentions, self.errors, self.anchors = root, 0, 0, [], {}

    def anchors_in(self, path):
        if path not in self.anchors:
            self.anchors[path] = anchors_of(path.read_text())
        return self.anchors[path]

    def error(self, path, text, at, words):
        self.errors.append(f"{path.relative_to(self.root)}:{text.count(chr(10), 0, at) + 1}: {words}")

    def check_page(self, path):
        text = without_blocks(path.read_text())
        for match in CODE_OR_LINK.finditer(text):
            target = match.group(1) or match.group(2)
            if target is None or re.match(r"[a-z]+:", target):
                continue
            self.links += 1
            name, _, anchor = target.partition("#")
            to = (path.parent / name).resolve() if name else path
            if not to.is_relative_to(self.root) or not to.exists():
                self.error(path, text, match.start(), f"{target} is not there")
            elif anchor and to.suffix == ".md" and anchor not in self.anchors_in(to):
                self.error(path, text, match.start(), f"{target}: there is no such heading")

    def check_source(self, path):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            return
        for match in PAGE_NAME.finditer(text):
            self.mentions += 1
            if not (self.root / match.group()).is_file():
                self.error(path, text, match.start(), f"{match.group()} is not there")


def main(root):
    tree = Tree(root)
    files = [path for path in root.iterdir() if path.is_file()]
    for folder in FOLDERS:
        files += (root / folder).rglob("*")
    pages = 0
    for path in sorted(files):
        if not path.is_file() or LEFT_OUT.search(path.relative_to(root).as_posix()):
            continue
        if path.suffix == ".md":
            pages += 1
            tree.check_page(path)
        elif path.suffix in SOURCES:
            tree.check_source(path)
    for error in tree.errors:
        print(error)
    if not tree.links:
        sys.exit(f"{root}: there are no links")
    print(f"{tree.links} links of {pages} pages, {tree.mentions} mentions of pages, {len(tree.errors)} errors")
    return 1 if tree.errors else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
