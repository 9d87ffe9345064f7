"""Small faults that could be planted into a C or C++ file, found in its syntax tree by libclang."""
import pathlib
import re
import sys
import zlib

from clang.cindex import Config, CursorKind, Index, TypeKind

OTHER_COMPARISON = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
OTHER_LOGIC = {"&&": "||", "||": "&&"}
OTHER_ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "&": "|", "|": "&", "^": "|", "<<": ">>", ">>": "<<"}
FUNCTIONS = {CursorKind.FUNCTION_DECL, CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR, CursorKind.DESTRUCTOR, CursorKind.CONVERSION_FUNCTION,
             CursorKind.FUNCTION_TEMPLATE}
# What the compiler computes by itself is never mutated: a switch there would have no effect.
CONSTANTS = {CursorKind.STATIC_ASSERT, CursorKind.CXX_UNARY_EXPR, CursorKind.DECL_REF_EXPR, CursorKind.TYPE_REF, CursorKind.TYPE_ALIAS_DECL,
             CursorKind.TYPEDEF_DECL, CursorKind.TEMPLATE_REF, CursorKind.ENUM_DECL}
DROPPED = {CursorKind.CALL_EXPR, CursorKind.BINARY_OPERATOR, CursorKind.COMPOUND_ASSIGNMENT_OPERATOR, CursorKind.UNARY_OPERATOR,
           CursorKind.UNEXPOSED_EXPR, CursorKind.CONTINUE_STMT}
NUMBERS = {CursorKind.BINARY_OPERATOR, CursorKind.CALL_EXPR, CursorKind.UNEXPOSED_EXPR, CursorKind.RETURN_STMT,
           CursorKind.COMPOUND_ASSIGNMENT_OPERATOR, CursorKind.ARRAY_SUBSCRIPT_EXPR, CursorKind.PAREN_EXPR, CursorKind.CONDITIONAL_OPERATOR}
INTEGERS = {TypeKind.CHAR_U, TypeKind.UCHAR, TypeKind.USHORT, TypeKind.UINT, TypeKind.ULONG, TypeKind.ULONGLONG, TypeKind.CHAR_S, TypeKind.SCHAR,
            TypeKind.SHORT, TypeKind.INT, TypeKind.LONG, TypeKind.LONGLONG}


class Mutant:
    """The text of [begin, end) in a file, and what stands there in its place. A statement's text ends in ';'. `operator`: the kind of change."""

    def __init__(self, path, begin, end, operator, original, replacement, function):
        self.path, self.begin, self.end, self.operator, self.original, self.replacement = path, begin, end, operator, original, replacement
        self.line = 0
        self.condition = False  # the text is a condition, of any type that can be one
        self.tests, self.slower = [], []
        self.text = f"{function}: {one_line(original)} -> {one_line(replacement) or 'nothing'}"
        self.number = 0

    def __str__(self):
        """Its name, which stays the same wherever in the file its function is."""
        return f"{self.path}: {self.text}"

    def place(self):
        return f"{self.path}:{self.line}: {self.operator}: {self.text}"


def one_line(text):
    text = " ".join(text.split())
    return text if len(text) <= 90 else f"{text[:60]}...{text[-25:]}"


class Finder:
    """Of one file: walks its functions' bodies and collects mutants."""

    def __init__(self, path, text, offset):
        self.path, self.text, self.offset, self.found = path, text, offset, []

    def span(self, cursor):
        return cursor.extent.start.offset - self.offset, cursor.extent.end.offset - self.offset

    def source(self, cursor):
        begin, end = self.span(cursor)
        return self.text[begin:end]

    def add(self, operator, begin, end, replacement, function):
        original = self.text[begin:end]
        if begin < end and "#" not in original:  # a directive cannot stand in an expression
            self.found.append(Mutant(self.path, begin, end, operator, original, replacement, function))

    def negated(self, begin, end, function):
        self.add("negated", begin, end, f"!({self.text[begin:end]})", function)
        if self.found and (self.found[-1].begin, self.found[-1].end) == (begin, end):
            self.found[-1].condition = True

    def declarations(self, cursor, file, names=()):
        for child in cursor.get_children():
            if child.location.file is None or child.location.file.name != file:
                continue
            if child.kind in FUNCTIONS and child.is_definition():
                if re.search(r"\bconsteval\b", self.source(child).split("{")[0]):
                    continue
                parent = child.semantic_parent
                owner = list(names) or ([parent.spelling] if parent is not None and parent.kind != CursorKind.TRANSLATION_UNIT else [])
                self.body(child, "::".join([*filter(None, owner), child.spelling]))
            elif child.kind in (CursorKind.NAMESPACE, CursorKind.LINKAGE_SPEC, CursorKind.UNEXPOSED_DECL):
                self.declarations(child, file)
            elif child.kind in (CursorKind.CLASS_DECL, CursorKind.STRUCT_DECL, CursorKind.CLASS_TEMPLATE,
                                CursorKind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION):
                self.declarations(child, file, (child.spelling,))

    def body(self, function, name):
        result = function.result_type.get_canonical().kind
        for child in function.get_children():
            if child.kind == CursorKind.COMPOUND_STMT:
                self.statement(child, name, result)

    def statement(self, cursor, name, result, parent=None):
        """A cursor in a function's body, and all below it."""
        kind, children = cursor.kind, list(cursor.get_children())
        if kind in CONSTANTS or kind in (CursorKind.VAR_DECL, CursorKind.DECL_STMT) and re.search(r"\bconstexpr\b", self.source(cursor).split("=")[0]):
            return  # all variables of the statement
        if kind == CursorKind.LAMBDA_EXPR:
            children = [c for c in children if c.kind == CursorKind.COMPOUND_STMT]
            result = TypeKind.UNEXPOSED
        elif kind == CursorKind.CASE_STMT:
            children = children[1:]
        elif kind in (CursorKind.IF_STMT, CursorKind.WHILE_STMT):
            children = self.branch(cursor, children, name)
        elif kind == CursorKind.COMPOUND_STMT:
            for child in children:
                self.droppable(child, name)
        elif kind == CursorKind.FOR_STMT or kind == CursorKind.CXX_FOR_RANGE_STMT:
            self.droppable(children[-1], name)
        elif kind == CursorKind.BINARY_OPERATOR and len(children) == 2:
            self.operator(cursor, children, name)
        elif kind == CursorKind.RETURN_STMT and children:
            self.result(children[0], name, result)
        elif kind == CursorKind.INTEGER_LITERAL and parent in NUMBERS:
            begin, end = self.span(cursor)
            if re.fullmatch(r"[0-9][0-9a-fA-FxX']*[uUlLzZ]*", self.text[begin:end]):
                self.add("number", begin, end, f"{self.text[begin:end]} + 1", name)
        elif kind == CursorKind.CONDITIONAL_OPERATOR and len(children) == 3:
            self.negated(*self.span(children[0]), name)
        for child in children:
            self.statement(child, name, result, kind)

    def branch(self, cursor, children, name):
        """`if` or `while`: its condition negated, single statements behind it dropped. What is left to walk."""
        source, (begin, _) = self.source(cursor), self.span(cursor)
        close, depth = None, 0
        for i, character in enumerate(source):
            depth += {"(": 1, ")": -1}.get(character, 0)
            if character == ")" and depth == 0:
                close = begin + i
                break
        if close is None or re.match(r"if\s+constexpr", source):
            return [c for c in children if close is None or self.span(c)[0] > close]
        heads = [c for c in children if self.span(c)[1] <= close]
        bodies = [c for c in children if self.span(c)[0] > close]
        for body in bodies:
            self.droppable(body, name)
        if heads and not any(c.kind in (CursorKind.VAR_DECL, CursorKind.DECL_STMT) and self.span(c)[1] >= self.span(heads[-1])[1] for c in heads):
            first, last = self.span(heads[-1])
            self.negated(first, last, name)
        return heads + bodies

    def droppable(self, cursor, name):
        """A statement that can be left out."""
        if cursor.kind not in DROPPED:
            return
        begin, end = self.span(cursor)
        if (rest := re.match(r"\s*;", self.text[end:])) is not None:
            self.add("left out", begin, end + rest.end(), "", name)

    def operator(self, cursor, children, name):
        left, right = children
        begin, end = self.span(cursor)
        between = self.text[self.span(left)[1]:self.span(right)[0]].strip()
        if self.span(left)[0] != begin or self.span(right)[1] != end:
            return  # a macro's
        texts = self.source(left), self.source(right)
        for operator, others in (("comparison", OTHER_COMPARISON), ("logic", OTHER_LOGIC), ("arithmetic", OTHER_ARITHMETIC)):
            integers = all(c.type.get_canonical().kind in INTEGERS for c in (cursor, left, right))
            if between in others and (integers or operator != "arithmetic"):
                self.add(operator, begin, end, f"({texts[0]}) {others[between]} ({texts[1]})", name)
        if between in OTHER_LOGIC:
            self.add("half", begin, end, f"!!({texts[0]})", name)
            self.add("half", begin, end, f"!!({texts[1]})", name)

    def result(self, cursor, name, result):
        begin, end = self.span(cursor)
        if result == TypeKind.BOOL:
            self.negated(begin, end, name)
        elif result in INTEGERS and cursor.kind != CursorKind.INTEGER_LITERAL:
            self.add("number", begin, end, f"({self.text[begin:end]}) + 1", name)


def find(root, path, arguments, before=""):
    """All mutants of a file. `arguments` are a compiler's; `before` is included in front of a header that needs it."""
    if not Config.loaded and pathlib.Path("/usr/lib/llvm-19/lib/libclang.so.1").exists():
        Config.set_library_file("/usr/lib/llvm-19/lib/libclang.so.1")
    text = (root / path).read_bytes().decode("latin-1")  # offsets count bytes
    name = str(root / path)
    unit = Index.create().parse(name, args=arguments, unsaved_files=[(name, before + text)] if before else None)
    errors = [d for d in unit.diagnostics if d.severity >= 3]
    if errors:
        raise ValueError(f"{path}: {errors[0].location.line}: {errors[0].spelling}")
    finder = Finder(path, text, len(before))
    finder.declarations(unit.cursor, name)
    mutants = numbered([m for m in finder.found if m.end <= len(text)])
    for mutant in mutants:
        mutant.line = text.count("\n", 0, mutant.begin) + 1
    return mutants


def numbered(mutants):
    """Gives each a name and a number that stay as long as its function does, wherever in the file that is."""
    seen, unique = {}, {}
    for mutant in sorted(mutants, key=lambda m: (m.begin, m.end)):
        unique.setdefault((mutant.begin, mutant.end, mutant.replacement), mutant)
    for mutant in unique.values():
        count = seen[mutant.text] = seen.get(mutant.text, 0) + 1
        if count > 1:
            mutant.text += f" ({count})"
        mutant.number = zlib.crc32(str(mutant).encode()) | 1
    return list(unique.values())
