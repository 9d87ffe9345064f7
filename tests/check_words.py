#!/usr/bin/python3
"""Is the prose easy to read?  check_words.py [--tighten] ROOT LIST

Measures each page of docs/, README.md and CONTRIBUTING.md, all of these pages together, and the comments of the public
headers together. Of the comments in src/, bpf/ and tests/ it measures the length of sentences alone, each comment by itself.
Says file, line and sentence where one is over a limit, and then fails. A single page may have a few more than its share,
since many are short.

LIST names the pages that do not hold the limits yet, a line each, with the figures of that page instead:
    docs/page.md  long=12.5 longest=0 marks=1.4 headless=6 pronouns=25 examples=0
A page may not get worse than its line says. --tighten lowers the figures of LIST to those of today, and takes out pages
that are gone or hold the limits.
"""
import pathlib
import re
import sys

# name: the limit, how many more a single page may have, text for people
LIMITS = {
    "long": (5.0, 1, "% of the sentences have over 30 words"),
    "longest": (0.5, 0, "% of the sentences have over 40 words"),
    "marks": (1.2, 5, " commas, semicolons and brackets a sentence"),
    "headless": (4.0, 2, " clauses without a noun in 1,000 words"),
    "pronouns": (20.0, 4, " pronouns in 1,000 words"),
}
WHOLE = {"long": 100, "longest": 100, "marks": 1, "headless": 1000, "pronouns": 1000, "examples": 1000}
EXAMPLES = 1.0  # in 1,000 words, of all pages together; each page has one, in words or as a block of code
HEADERS = "include/windlass/"
SOURCES = ("src/", "bpf/", "tests/")  # whose comments are measured by these limits only:
SOURCE_LIMITS = ("long", "longest")

HEADLESS = re.compile(
    r"\b(what|whatever|who|whoever|nobody|somebody|everybody|such|as well|so does|so is|of which|by which|in which)\b", re.I)
PRONOUN = re.compile(r"\b(it|its|they|them|one|ones)\b", re.I)
EXAMPLE = re.compile(r"\bfor example\b|\bfor instance\b|\be\.g\.", re.I)
SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*\[\"(])")
WORD = re.compile(r"[A-Za-z0-9_'`()./:-]+")
LIST_ITEM = re.compile(r"\s*([-*]|\d+\.)\s")


class Sentence:
    def __init__(self, file, line, text):
        self.file, self.line, self.text = file, line, text
        self.length = len(WORD.findall(text))
        self.counts = {
            "long": self.length > 30,
            "longest": self.length > 40,
            "marks": len(re.findall(r"[,;(]", text)),
            "headless": len(HEADLESS.findall(text)),
            "pronouns": len(PRONOUN.findall(text)),
        }


def prose_of_page(text):
    """The lines of a page, empty where there is no prose: code, comments, tables, headings."""
    blank = lambda match: "\n" * match.group().count("\n")
    text = re.sub(r"```.*?```|<!--.*?-->", blank, text, flags=re.S)
    text = re.sub(r"`[^`\n]*`", "X", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return ["" if line.lstrip().startswith(("|", "#")) else line for line in text.split("\n")]


def prose_of_header(text):
    """The same of a header: its comments."""
    lines = []
    in_block = False
    for line in text.split("\n"):
        comment = line if in_block else "".join(re.findall(r"(?://|/\*).*", line))
        in_block = comment.rfind("/*") > comment.rfind("*/") or (in_block and "*/" not in line)
        lines.append(re.sub(r"^\s*(//+[!/]?<?|/?\*+/?)\s?|\*/.*", "", comment))
    return lines


def comment_begins(text):
    """The lines of a source at which a comment behind code begins, or one in front of code ends."""
    begins, had_code = set(), False
    for number, line in enumerate(text.split("\n"), 1):
        has_code = not re.match(r"\s*(//|/\*|\*|$)", line)
        if has_code or had_code:
            begins.add(number)
        had_code = has_code and not re.search(r"//|/\*", line)
    return begins


def sentences_of(file, lines, begins=frozenset()):
    paragraph = []  # (line number, text)

    def ended():
        text, starts = "", []
        for number, line in paragraph:
            starts.append((len(text), number))
            text += " ".join(line.split()) + " "
        paragraph.clear()
        begin = 0
        for part in SENTENCE_END.split(text):
            at = text.index(part, begin)
            begin = at + len(part)
            sentence = Sentence(file, max(n for start, n in starts if start <= at), part.strip()) if starts else None
            if sentence and sentence.length >= 4:
                yield sentence

    for number, line in enumerate(lines, 1):
        if not line.strip() or LIST_ITEM.match(line) or number in begins:
            yield from ended()
        if line.strip():
            paragraph.append((number, line))
    yield from ended()


class Text:
    """Some files, measured together."""

    def __init__(self, name):
        self.name, self.sentences, self.words, self.examples, self.blocks = name, [], 0, 0, 0

    def add_source(self, file, text):
        self.sentences += sentences_of(file, prose_of_header(text), comment_begins(text))

    def add(self, file, text):
        lines = prose_of_header(text) if file.endswith(".h") else prose_of_page(text)
        prose = "\n".join(lines)
        self.sentences += sentences_of(file, lines)
        self.words += len(re.findall(r"[a-zA-Z']+", prose))
        self.examples += len(EXAMPLE.findall(" ".join(prose.split())))
        self.blocks += text.count("```") // 2

    def add_text(self, other):
        self.sentences += other.sentences
        self.words += other.words
        self.examples += other.examples
        self.blocks += other.blocks

    def figure(self, measure, fewer=0):
        """As the limits have it, to a decimal; with that many taken away."""
        count = self.examples if measure == "examples" else sum(s.counts[measure] for s in self.sentences)
        per_word = measure in ("headless", "pronouns", "examples")
        return round(WHOLE[measure] * (count - fewer) / max(self.words if per_word else len(self.sentences), 1), 1)

    def errors(self, listed, together, measures=tuple(LIMITS)):
        """`listed`: the figures that this text has in LIST, if any; `together`: many files, not one page."""
        for measure in measures:
            limit, more, words = LIMITS[measure]
            limit = (listed or {}).get(measure, limit)
            if self.figure(measure, fewer=0 if listed or together else more) <= limit:
                continue
            yield f"{self.name}: {self.figure(measure):g}{words}, the limit is {limit:g}"
            worst = sorted((s for s in self.sentences if s.counts[measure]), key=lambda s: (-s.counts[measure], -s.length))
            for s in worst[:5]:
                yield f"  {s.file}:{s.line}: {s.text}"
        wanted = (listed or {}).get("examples", EXAMPLES if together and len(measures) == len(LIMITS) else 0)
        if self.figure("examples") < wanted:
            yield f"{self.name}: {self.figure('examples'):g} examples in 1,000 words, the least is {wanted:g}"
        if not listed and not together and not self.examples and not self.blocks:
            yield f'{self.name}:1: no example: neither "for example" nor a block of code'

    def line(self, listed):
        """For LIST: the figures of today, or those of LIST where they are better."""
        figures = {m: min(self.figure(m), listed.get(m, self.figure(m))) for m in LIMITS}
        figures["examples"] = max(self.figure("examples"), listed.get("examples", 0))
        return self.name + "  " + " ".join(f"{m}={figure:g}" for m, figure in figures.items())


def read_list(path):
    listed = {}
    for number, line in enumerate(path.read_text().split("\n"), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        name, *figures = line.split()
        try:
            listed[name] = {key: float(value) for key, value in (figure.split("=") for figure in figures)}
        except ValueError:
            sys.exit(f"{path}:{number}: neither a page nor figures as long=5")
        if unknown := set(listed[name]) - set(LIMITS) - {"examples"}:
            sys.exit(f"{path}:{number}: no such figure: {', '.join(sorted(unknown))}")
    return listed


def main(arguments):
    tighten = arguments[:1] == ["--tighten"]
    root, list_path = map(pathlib.Path, arguments[tighten:])
    listed = read_list(list_path)

    pages = []
    for path in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]:
        if path.is_file():
            page = Text(str(path.relative_to(root)))
            page.add(page.name, path.read_text())
            pages.append(page)
    everything = Text("all pages that are not listed")
    for page in pages:
        if page.name not in listed:
            everything.add_text(page)
    headers = Text(HEADERS)
    for path in sorted((root / HEADERS).glob("*.h")):
        headers.add(str(path.relative_to(root)), path.read_text())
    if not pages or not headers.sentences:
        sys.exit(f"{root}: there are no pages, or no headers")

    errors, found = [], {text.name: text for text in [*pages, headers]}
    for text in [*pages, headers]:
        errors += text.errors(listed.get(text.name), together=text is headers)
    if everything.sentences:
        errors += everything.errors(None, together=True)
    for folder in SOURCES:
        sources = Text(folder)
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in (".h", ".c", ".cc", ".cpp")):
            sources.add_source(str(path.relative_to(root)), path.read_text())
        errors += sources.errors(None, together=True, measures=SOURCE_LIMITS)
    done = [n for n in listed if n in found and not any(found[n].errors(None, together=n == HEADERS))]
    if tighten:
        kept = [line for line in list_path.read_text().split("\n") if line.startswith("#")]
        kept += [found[name].line(listed[name]) for name in listed if name in found and name not in done]
        list_path.write_text("\n".join(kept) + "\n")
    else:
        errors += [f"{name}: holds the limits, so take it out of {list_path}" for name in done]
    for error in errors:
        print(error)
    count = sum(not error.startswith("  ") for error in errors)
    print(f"{len(pages)} pages, {len(listed)} listed, {everything.words} words held to the limits, {count} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
