#!/usr/bin/env bash
# mutants/run.py --check compared with a made-up tree: what must fail does, and for its reason. And what --sample takes and keeps.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# tree: a file, and a list with a mutant of an expression and one of a statement
tree() {
  rm -rf "$work/tree"
  mkdir -p "$work"/tree/{src,tests/mutants}
  cd "$work/tree"
  printf 'int f(int a) {\n  if (a > 3 &&\n      a < 9) g();\n  return a - 1;\n}\n' > src/f.c
  cat > tests/mutants/f.list <<'LIST'
tests test_f
file src/f.c

= nine is too little
- a > 3 && «a < 9»
+ a <= 9

= g is not called
- g();
+
LIST
}

# expect STATUS TEXT: what the script says of the tree as it is
expect() {
  local status=0 output
  output=$("$here/mutants/run.py" --check --root . 2>&1) || status=$?
  if [ "$status" != "$1" ] || ! grep -qF -- "$2" <<< "$output"; then
    printf 'line %s: expected status %s and "%s"; status %s and\n%s\n' "${BASH_LINENO[0]}" "$1" "$2" "$status" "$output"
    exit 1
  fi
}

tree; expect 0 "2 mutants are where their lists say"

# The text is not in the file, there twice, or there is no such file.
tree; sed -i 's/a < 9/a < 10/' src/f.c; expect 1 "src/f.c: nine is too little: the original is 0 times in the file"
tree; echo 'int h() { g(); }' >> src/f.c; expect 1 "src/f.c: g is not called: the original is 2 times in the file"
tree; rm src/f.c; expect 1 "src/f.c: nine is too little: there is no such file"
tree; rm src/f.c; sed -i 's/a - 1/a/' tests/mutants/f.list; expect 1 "there is no such file"

# One mutant inside another is compiled with it; two that overlap cannot be.
tree; printf '= the whole is true\n- «a > 3 && a < 9»)\n+ 1\n' >> tests/mutants/f.list; expect 0 "3 mutants"
tree; printf '= three\n- «3 && a» < 9\n+ 1\n' >> tests/mutants/f.list; expect 1 "overlaps another mutant"

# The list itself.
tree; printf '= nine is too little\n- return «a - 1»;\n+ a\n' >> tests/mutants/f.list; expect 1 "two mutants have the same file and text"
tree; printf '= no text\n' >> tests/mutants/f.list; expect 1 "src/f.c: no text: it says not what is replaced, or not by what"
tree; printf '= no way\n- return «a - 1»;\n' >> tests/mutants/f.list; expect 1 "src/f.c: no way: it says not what is replaced, or not by what"
tree; printf '= two\n- return «a - 1»;\n+ 0\nknown well\n' >> tests/mutants/f.list; expect 1 "tests/mutants/f.list:14: not understood: known well"
tree; printf '= two\n- return «a - 1»;\n+ 0\nequivalent\n' >> tests/mutants/f.list; expect 1 "src/f.c: two: equivalent, but not why"

tree; rm tests/mutants/f.list; expect 1 "there are no mutants"
# A sample is the same every time, and has some of every list.
tree; for i in {1..30}; do printf '= m%s\n- return «a - 1»;\n+ %s\n' "$i" "$i" >> tests/mutants/f.list; done
printf 'tests test_f\nfile src/f.c\n= alone\n- int a\n+ int a\n' > tests/mutants/g.list
first=$("$here/mutants/run.py" --root . --list --sample 8)
[ "$first" = "$("$here/mutants/run.py" --root . --list --sample 8)" ] && [ "$(wc -l <<< "$first")" = 9 ] && grep -q 'alone$' <<< "$first" ||
  { echo "a sample of 8 of 32, and one of the second list: $first"; exit 1; }

# What came out is known again, but a line that was cut off and what belongs to other sources are not.
PYTHONDONTWRITEBYTECODE=1 python3 - "$here/mutants" "$work" <<'PYTHON'
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import run
def mutant(text):
    return run.Mutant("f", "src/f.c", text)
path, noticed, survivor, cut = pathlib.Path(sys.argv[2]) / "sample.txt", mutant("noticed"), mutant("survivor"), mutant("cut off")
results = run.Results(path, "sources")
results.add(noticed, "test_f: a\tb\nc")
results.add(survivor, None)
with path.open("a") as file:
    file.write(f"{cut.number}\ttest")
expected = {noticed.number: "test_f: a b c", survivor.number: ""}
again = run.Results(path, "sources")
assert again.known == expected, again.known
again.add(cut, "test_f: d")
assert run.Results(path, "sources").known == expected | {cut.number: "test_f: d"}, path.read_text()
assert run.Results(path, "other sources").known == {}
PYTHON
echo "all as expected"
