#!/usr/bin/python3
"""Makes plain comments doxygen's.  doc_comments.py HEADER

An input filter: headers have // and /* */ comments, written for people who read the header. Comments before a declaration and
behind one become documentation of it, those within a function's body do not. Indented lines of a comment become a block
of code, and characters that mean something to doxygen are escaped. Commands (@param) pass. No line is added or removed, so
that warnings name the header's lines.
"""
import pathlib
import re
import sys

INDENTED = re.compile(r" {2,}\S")
LIST_ITEM = re.compile(r"\s*([-*]|\d+\.) ")
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum)\b|extern\s+\"C\"")
SECTION = re.compile(r"\s*-{3,}")  # /* ---- versions ---- */ describes no declaration
FOR_TIDY = re.compile(r"\s*NOLINT")  # a line for clang-tidy describes none either


def escaped(line):
    """Outside of `code`, which doxygen takes as it is."""
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if i % 2 else re.sub(r"[\\<>#%&\"]|(?<=\w)@|(?<!\w)::", r"\\\g<0>", part) for i, part in enumerate(parts))


def form_of(paragraph):
    """Of an indented paragraph: prose, code, or another text whose columns count."""
    text = " ".join(line.strip() for line in paragraph)
    if any(re.search(r"([;{}]|\.\.\.)\s*(//.*)?$", line) for line in paragraph):
        return "code"
    return "prose" if text[:1].isupper() and "  " not in text and len(text.split()) > 8 else "text"


def paragraphs_of(block):
    """(form, lines) of an indented block; each but the last has its blank lines, and neighbours of one form are together."""
    result, paragraph = [], []
    for i, line in enumerate(block):
        paragraph.append(line)
        if i + 1 == len(block) or (not line.strip() and block[i + 1].strip()):
            form = form_of([line for line in paragraph if line.strip()])
            if result and result[-1][0] == form:
                result[-1][1].extend(paragraph)
            else:
                result.append((form, paragraph))
            paragraph = []
    return result


def marked_up(lines):
    """The text of a comment, line by line, with its blocks of code."""
    result, number = [], 0
    while number < len(lines):
        if number == 0 or not INDENTED.match(lines[number]) or LIST_ITEM.match(lines[number]) or in_list(lines, number):
            result.append(escaped(lines[number]))
            number += 1
            continue
        end = number
        while end < len(lines) and (INDENTED.match(lines[end]) or not lines[end].strip()) and not LIST_ITEM.match(lines[end]):
            end += 1
        while not lines[end - 1].strip():
            end -= 1
        for form, paragraph in paragraphs_of(lines[number:end]):
            if form == "prose":
                result += [" " + escaped(line.strip()) for line in paragraph]
            else:
                result[-1] += " @code{.cpp}" if form == "code" else " @code{.unparsed}"
                result += paragraph[:-1] + [paragraph[-1] + " @endcode"]
        number = end
    return result


def in_list(lines, number):
    """Does the line go on with a list's item?"""
    while number and lines[number].strip() and not LIST_ITEM.match(lines[number]):
        number -= 1
    return bool(LIST_ITEM.match(lines[number]))


class Comment:
    """Lines [begin, end) of a header. before: the code in front of it; marks and text: of each line."""

    def __init__(self, begin, before):
        self.begin, self.before, self.marks, self.texts, self.end_mark = begin, before, [], [], ""

    def written(self, is_file, name):
        texts = ["" if FOR_TIDY.match(text) else text for text in marked_up(self.texts)]
        if is_file:
            texts[0] = f" @file {name} \\ilinebr" + texts[0]
        behind = "<" if self.before.strip() else ""
        lines = []
        for i, (mark, text) in enumerate(zip(self.marks, texts)):
            if mark.strip() == "//":
                mark = mark.replace("//", "///" + behind)
            elif mark.strip() == "/*":
                mark = mark.replace("/*", "/**" + behind)
            lines.append((self.before if i == 0 else "") + mark + text)
        lines[-1] += self.end_mark
        return lines


def comment_at(lines, number):
    """The comment that begins on this line and ends a line, or None."""
    line = lines[number]
    code = re.match(r"(?:[^\"'/]|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)+'|(?<=\d)'|/\*.*?\*/(?=.*[^\s*/].*)|/(?![/*]))*", line).group()
    rest = line[len(code):]
    if rest.startswith("//"):
        comment = Comment(number, code)
        comment.marks.append("//")
        comment.texts.append(rest[2:])
        column = len(code)
        following = number + 1
        while following < len(lines) and re.match(rf" {{{column}}}//", lines[following]):
            comment.marks.append(" " * column + "//")
            comment.texts.append(lines[following][column + 2:])
            following += 1
        return comment
    if rest.startswith("/*"):
        comment = Comment(number, code)
        comment.marks.append("/*")
        text = rest[2:]
        while "*/" not in text:
            comment.texts.append(text)
            number += 1
            mark = re.match(r"\s*\*?(?!/)", lines[number]).group()
            comment.marks.append(mark)
            text = lines[number][len(mark):]
        text, _, after = text.partition("*/")
        comment.texts.append(text)
        comment.end_mark = "*/" + after
        return comment if not after.strip() else None
    return None


class Scopes:
    """Which braces are open: those of namespaces and types, or those of a body."""

    def __init__(self):
        self.open, self.statement = [], ""

    def read(self, code):
        for character in re.sub(r"\"(?:[^\"\\]|\\.)*\"", lambda m: m.group() if m.group() == '"C"' else '""', code):
            if character == "{":
                head = re.sub(r"alignas\s*\([^)]*\)|\[\[.*?\]\]|template\s*<[^{]*?>\s*(?=class|struct)", "", self.statement)
                self.open.append(bool(SCOPE.search(head)) and "(" not in head and "=" not in head)
                self.statement = ""
            elif character == "}":
                if self.open:
                    self.open.pop()
                self.statement = ""
            elif character == ";":
                self.statement = ""
            else:
                self.statement += character
        self.statement += " "

    def in_body(self):
        return not all(self.open)


def filtered(name, text):
    lines = text.split("\n")
    result, scopes, number, is_first = [], Scopes(), 0, True
    while number < len(lines):
        if lines[number].lstrip().startswith("#"):
            while lines[number].endswith("\\"):
                result.append(lines[number])
                number += 1
        comment = comment_at(lines, number)
        is_macro = lines[number].lstrip().startswith("#")
        if comment is None:
            result.append(lines[number])
            if not is_macro:
                scopes.read(re.sub(r"/\*.*?\*/", "", lines[number]))
            number += 1
            continue
        end = number + len(comment.texts)
        plain = scopes.in_body() or SECTION.match(comment.texts[0]) or FOR_TIDY.match(comment.texts[0]) or re.match(r"\s*(}|#(?!define))", comment.before)
        if not is_macro:
            scopes.read(re.sub(r"/\*.*?\*/", "", comment.before))
        result += lines[number:end] if plain else comment.written(is_first, name)
        is_first = False
        number = end
    return "\n".join(result)


if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    sys.stdout.write(filtered(path.name, path.read_text()))
