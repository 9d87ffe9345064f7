#!/usr/bin/python3
"""Makes the site of the documentation.  build.py OUT

Puts the pages of docs/, README.md and the like into OUT/pages, with links that fit their places there, and the reference of
the public headers beside them (doxygen, whose warnings are errors). mkdocs then makes OUT/html of both, and its warnings are
errors, too. The navigation is docs/README.md: a heading there is a section, the first cell of a table's head a part of it.

What a page links to and is no page of docs/ comes along: another page of the repository as a page, a source file as a page that
shows it, a public header as its page of the reference.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = {"mkdocs": "mkdocs mkdocs-material", "doxygen": "doxygen"}  # and the packages that bring them
THEME = pathlib.Path("/usr/share/mkdocs/themes/material")
FRONT = {"README.md": "index.md", "docs/README.md": "all-pages.md", "CONTRIBUTING.md": "contributing.md",
         "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
HEADERS_PAGE = "docs/reference/headers.md"
LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".c": "c", ".py": "python", ".sh": "sh", ".yml": "yaml", ".json": "json"}

FENCE = re.compile(r"\s*(```|~~~)")
LINK = re.compile(r"`[^`]*`|\]\(([^()\s]+)\)")  # or code, which has none
HEADING = re.compile(r"(#{1,6}) +(.*)")
ITEM = re.compile(r"( *)([-*]|\d+\.)( +)\S")


def reference_page(header):
    """How doxygen names the page of a header: by its folder, too, where another header has its name."""
    same = list((ROOT / "include/windlass").rglob(pathlib.Path(header).name))
    name = header.removeprefix("include/windlass/") if len(same) > 1 else pathlib.Path(header).name
    return re.sub(r"[_./]", lambda mark: {"_": "__", ".": "_8", "/": "_2"}[mark.group()], name)


def missing():
    """What to install, or nothing."""
    packages = [names for program, names in PROGRAMS.items() if shutil.which(program) is None]
    if not THEME.is_dir() and PROGRAMS["mkdocs"] not in packages:
        packages.append("mkdocs-material")
    return " ".join(packages)


def outside_code(text, change):
    """Changes each line that lies in no block of code."""
    lines, fence = [], None
    for line in text.split("\n"):
        mark = FENCE.match(line)
        if mark and fence in (None, mark.group(1)):
            fence = mark.group(1) if fence is None else None
            lines.append(line)
        else:
            lines.append(line if fence else change(line))
    return "\n".join(lines)


def with_deep_lists(text):
    """Lists as Python's Markdown wants them: four spaces a level, an empty line in front."""
    result, starts, fence = [], [], False  # starts: the columns at which the text of the open items begins
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip())
        item = None if fence else ITEM.match(line)
        if line.strip() and not fence and (item or not (result and result[-1].strip())):
            while starts and indent < starts[-1]:
                starts.pop()
        if item and not starts and result and result[-1].strip() and not is_item_text(result):
            if item.group(2) in "-*":
                result.append("")
            else:
                item = None  # a number that happens to begin a line
        column = starts[-1] if starts else 0
        result.append("    " * len(starts) + line[min(column, indent):] if line.strip() else line)
        if item:
            starts.append(item.end() - 1)
        if FENCE.match(line):
            fence = not fence
    return "\n".join(result)


def with_whole_words(line):
    """Marks the short pieces of code in a table, which a narrow page would break at hyphens: style.css keeps them whole."""
    return re.sub(r"`([^`]{1,28})`", r"`\1`{ .whole }", line) if line.startswith("|") else line


def is_item_text(lines):
    """Does the paragraph at the end belong to a list's item?"""
    for line in reversed(lines):
        if not line.strip():
            return False
        if ITEM.match(line):
            return True
    return False


class Site:
    def __init__(self, out):
        self.out, self.pages = out, out / "pages"
        self.waiting, self.placed = [], {}

    def place_of(self, path):
        """Where a file of the repository is on the site; a page is then made there."""
        if path in self.placed:
            return self.placed[path]
        if path in FRONT:
            place = FRONT[path]
        elif path.startswith("docs/"):
            place = path.removeprefix("docs/")
        elif path.startswith("include/windlass/"):
            return "api/" + reference_page(path) + ".html"
        elif path.endswith(".md"):
            place = "repository/" + path
        else:
            place = "repository/" + path + ".md"
        self.placed[path] = place
        self.waiting.append(path)
        return place

    def changed_link(self, page, place, link):
        """A link of `page`, which is at `place` on the site."""
        target = link.group(1)
        if target is None or re.match(r"[a-z]+:|#", target):
            return link.group()
        name, anchor, fragment = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), name))
        if (ROOT / path).is_dir():
            path += "/README.md"
        if not (ROOT / path).is_file():
            sys.exit(f"{page}: links to {target}, which is not there")
        return f"]({os.path.relpath(self.place_of(path), os.path.dirname(place) or '.')}{anchor}{fragment})"

    def write(self, path):
        place = self.placed[path]
        to = self.pages / place
        to.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".png"):
            shutil.copy(ROOT / path, to)
            return
        text = (ROOT / path).read_text()
        if not path.endswith(".md"):
            fence = "`" * 4
            text = f"# {path}\n\n{fence}{LANGUAGES.get(pathlib.Path(path).suffix, '')}\n{text.rstrip()}\n{fence}\n"
        else:
            text = outside_code(text, lambda line: LINK.sub(lambda link: self.changed_link(path, place, link), line))
            text = with_deep_lists(outside_code(text, with_whole_words))
        to.write_text(text)

    def write_all(self):
        for path in [*FRONT, *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]:
            if (ROOT / path).is_file():
                self.place_of(path)
        while self.waiting:
            self.write(self.waiting.pop())
        shutil.copy(ROOT / "site/style.css", self.pages / "style.css")

    def navigation(self):
        """From docs/README.md: its headings, heads of tables, links."""
        sections, section, part, seen = [], None, None, set()
        for line in (ROOT / "docs/README.md").read_text().split("\n"):
            if (heading := HEADING.fullmatch(line)) and len(heading.group(1)) == 2:
                section = part = []
                sections.append({heading.group(2): section})
            elif section is not None and (head := re.match(r"\| *([^|\[]+?) *\|.*", line)) and "](" not in line and "---" not in line:
                part = []
                section.append({head.group(1)[0].upper() + head.group(1)[1:]: part})
            for name, target in re.findall(r"\[([^\]]+)\]\(([^()\s#]+)\)", line) if section is not None else []:
                place = self.place_of(os.path.normpath("docs/" + target))
                if place not in seen:
                    seen.add(place)
                    part.append({name.replace("`", ""): place})
        front = [{"Start": "index.md"}, {"All pages": "all-pages.md"}, {"Changes": "changelog.md"}, {"Security": "security.md"}]
        return [{"Windlass": front}, *sections, {"Glossary": "glossary.md"}], seen

    def unreachable(self, seen):
        for path, place in sorted(self.placed.items()):
            if path.startswith("docs/") and place.endswith(".md") and place not in seen and path not in ("docs/README.md", "docs/glossary.md"):
                yield path


def run(command, **more):
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{command[0]} failed")


def main(out):
    if packages := missing():
        sys.exit(f"the site needs programs that are not here; on Debian: sudo apt-get install {packages}")
    os.chdir(ROOT)
    site = Site(out)
    shutil.rmtree(site.pages, ignore_errors=True)
    site.pages.mkdir(parents=True)
    site.write_all()
    navigation, seen = site.navigation()
    if forgotten := list(site.unreachable(seen)):
        sys.exit("docs/README.md does not link to " + ", ".join(forgotten))

    version = (ROOT / "VERSION").read_text().strip()
    settings = (ROOT / "site/Doxyfile").read_text()
    front = out / "headers.md"
    front.write_text((site.pages / site.placed[HEADERS_PAGE]).read_text().replace("](../api/", "]("))
    settings += f'\nPROJECT_NUMBER = {version}\nOUTPUT_DIRECTORY = "{site.pages}"\n'
    settings += f'INPUT += "{front}"\nUSE_MDFILE_AS_MAINPAGE = "{front}"\n'
    run(["doxygen", "-"], input=settings)

    configuration = (ROOT / "site/mkdocs.yml").read_text()
    for key, value in {"docs_dir": str(site.pages), "site_dir": str(out / "html"), "nav": navigation}.items():
        configuration += f"{key}: {json.dumps(value)}\n"
    (out / "mkdocs.yml").write_text(configuration)
    run(["mkdocs", "build", "--clean", "--strict", "--config-file", str(out / "mkdocs.yml")])
    print(f"{len(site.placed)} pages: {out}/html/index.html")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]).resolve())
