#!/usr/bin/python3
"""Makes the site, and follows all its links.  check_site.py ROOT OUT

Fails if the site cannot be made without a warning, if a link or an anchor of a made page leads nowhere, or if a page would load
something from another host.
"""
import html.parser
import pathlib
import re
import subprocess
import sys
import urllib.parse

LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}
NOT_MADE = ("api/", "#nested-classes")  # doxygen 1.9.4 links there from classes that have none to show
QUIET_LINKS = {"canonical", "next", "prev", "license"}  # rel of <link>: not loaded


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for name in ("id", "name"):
            if attributes.get(name) and (name == "id" or tag == "a"):
                self.anchors.add(attributes[name])
        for name in ("href", "src"):
            if attributes.get(name):
                is_load = (tag, name) in LOADS and attributes.get("rel") not in QUIET_LINKS
                (self.loads if is_load else self.links).append(attributes[name])

    handle_startendtag = handle_starttag


def check(folder):
    """Errors, and how many links there are."""
    pages = {path: Page(path.read_text()) for path in sorted(folder.rglob("*.html"))}
    errors, count = [], 0
    for path, page in pages.items():
        where = path.relative_to(folder)
        for target in page.loads:
            if re.match(r"(https?:)?//", target):
                errors.append(f"{where}: would load {target}")
        if where.name == "404.html":  # whose links begin at the host's root
            continue
        for target in page.links + page.loads:
            if re.match(r"[a-z]+:|//", target):
                continue
            count += 1
            name, _, anchor = target.partition("#")
            to = (path.parent / urllib.parse.unquote(name)).resolve() if name else path
            if to.is_dir():
                to /= "index.html"
            anchor = urllib.parse.unquote(anchor)
            if not to.is_file():
                errors.append(f"{where}: {target} is not there")
            elif str(where).startswith(NOT_MADE[0]) and target == NOT_MADE[1]:
                continue
            elif anchor and to in pages and anchor not in pages[to].anchors:
                errors.append(f"{where}: {target}: there is no such anchor")
    for path in sorted(folder.rglob("*.css")):
        if found := re.search(r"(?:url\(|@import )[\"' ]*((?:https?:)?//[^)\"' ]+)", path.read_text()):
            errors.append(f"{path.relative_to(folder)}: would load {found.group(1)}")
    return errors, count


def main(root, out):
    made = subprocess.run([root / "site/build.py", out], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lacks_programs = "needs programs that are not here" in made.stdout
    print("SKIPPED: " * lacks_programs + made.stdout, end="")
    if made.returncode:
        return 0 if lacks_programs else 1
    errors, count = check(out / "html")
    for error in errors:
        print(error)
    print(f"{count} links, {len(errors)} errors")
    return 1 if errors or not count else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()))
