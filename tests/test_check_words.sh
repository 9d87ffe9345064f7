#!/usr/bin/env bash
# check_words.py on a made-up tree: what must fail does, and for its reason.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# tree: three pages and a header that hold the limits
tree() {
  rm -rf "$work/tree"
  mkdir -p "$work"/tree/{docs/how-to,include/windlass}
  cd "$work/tree"
  printf '# Title\n\nA page is short. For example, this page has two sentences.\n' > README.md
  printf 'Build first. For example, run `make`.\n' > CONTRIBUTING.md
  printf 'Walk a process so:\n\n```\nwalk 1, 2, 3, (4), it, they, what\n```\n\nThe end of that page. For example, this.\n' > docs/how-to/walk.md
  printf '// A walk of a stack. For example, this stack.\nint walk(); // Walks the stack.\n/* Ends a\n * walk of a stack. */\nvoid end();\n' \
    > include/windlass/walk.h
  : > list
}

# expect STATUS TEXT...: what the script says of the tree as it is
expect() {
  local status=0 output text
  output=$("$here/check_words.py" . list 2>&1) || status=$?
  for text in "${@:2}"; do
    if [ "$status" != "$1" ] || ! grep -qF -- "$text" <<< "$output"; then
      printf 'line %s: expected status %s and "%s"; status %s and\n%s\n' "${BASH_LINENO[0]}" "$1" "$text" "$status" "$output"
      exit 1
    fi
  done
}

words() { for ((i = 0; i < $1; ++i)); do printf 'word '; done; }

tree; expect 0 "3 pages, 0 listed," " 0 errors"

# Each measure, with the sentence and its place.
tree; printf '\nShort again.\n\nSome %s\nend.\n' "$(words 45)" >> docs/how-to/walk.md
expect 1 "docs/how-to/walk.md: " "% of the sentences have over 40 words, the limit is 0.5" "  docs/how-to/walk.md:11: Some word" "word end."
tree; for i in 1 2; do printf '\n%s.\n' "$(words 35)"; done >> README.md; expect 1 "README.md: 50% of the sentences have over 30 words" "  README.md:7: word"
tree; echo 'So (here), there, now, then, again; and so on, or not, at all, and once more. For example, this, too.' > CONTRIBUTING.md
expect 1 "CONTRIBUTING.md: 5.5 commas, semicolons and brackets a sentence, the limit is 1.2" "  CONTRIBUTING.md:1: So (here)"
tree; printf '\nWhat somebody asks whoever asks it is answered.\n' >> README.md; expect 1 " clauses without a noun in 1,000 words" "  README.md:5: What somebody"
tree; printf '\nIt gives them its own, and one of them has it.\n' >> README.md; expect 1 " pronouns in 1,000 words" "  README.md:5: It gives"
tree; echo 'A page without any of that.' > README.md; expect 1 "README.md:1: no example"
tree; printf 'See below, on a page:\n\n    text\n\n```\nmake\n```\n' > CONTRIBUTING.md; expect 0 " 0 errors"

# Few of them on a short page are no error. Many pages of that kind are.
tree; printf '\n%s.\n' "$(words 35)" >> README.md; expect 1 "all pages that are not listed: " "% of the sentences have over 30 words"
for ((n = 0; n < 30; ++n)); do printf 'A sentence of six short words.\n'; done >> CONTRIBUTING.md; expect 0 " 0 errors"

# No prose: tables, headings, code, comments of the page.
tree; printf '\n| it, they, (one), it, them, it, what, such |\n|---|\n\n# It, they, what, such, who, whoever\n\n<!-- it, they\nit, what, such -->\n' >> README.md
expect 0 " 0 errors"

# Headers: their comments, in all forms, and nothing else.
tree; printf 'void f(int a, int b, int c, int d, int e, int one, int it, int they, int what, int such, int who);\n' >> include/windlass/walk.h; expect 0 " 0 errors"
tree; printf '/* Short.\n\n * What it has, they have, whoever asks them.\n */\n' >> include/windlass/walk.h; expect 1 "include/windlass/: " "  include/windlass/walk.h:8: What it has"
tree; printf 'int g();  // What it has, they have, whoever asks them.\n' >> include/windlass/walk.h; expect 1 "include/windlass/: " "  include/windlass/walk.h:6: What it has"

# Sources: the length of sentences in their comments, each by itself.
tree; mkdir -p src/a; printf '// It has them, and what it has.\nint a;  // %s\nint b;  // %s\n' "$(words 28)" "$(words 28)" > src/a/a.cpp; expect 0 " 0 errors"
tree; mkdir bpf; printf 'int a;  // %s\n        // %s\n' "$(words 20)" "$(words 25)" > bpf/a.h; expect 1 "bpf/: 100% of the sentences have over 40 words" "  bpf/a.h:1: word"
tree; mkdir tests; printf 'int a;\n/* %s\n * %s. */\nint b;\n' "$(words 20)" "$(words 25)" > tests/a.c; expect 1 "tests/: 100% of the sentences have over 40 words" "  tests/a.c:2: word"

# A listed page has the figures of its line, and only gets better.
hard() { tree; printf '\nWhat it has, they have, whoever asks them, and who does not.\n' >> README.md; printf '# pages\nREADME.md\ndocs/gone.md long=5\n' > list; }
hard; expect 1 "README.md: "
"$here/check_words.py" --tighten . list > /dev/null || true
grep -q '^README.md  long=0 longest=0 marks=[0-9.]* headless=[0-9.]* pronouns=[0-9.]* examples=[0-9.]*$' list && ! grep -q gone list && grep -q '^# pages$' list
expect 0 "3 pages, 1 listed," " 0 errors"
printf '\nWhatever it was, it was they who had such.\n' >> README.md; expect 1 "README.md: "
"$here/check_words.py" --tighten . list > /dev/null && exit 1; expect 1 "README.md: "  # which does not loosen it

# A list that is out of date, or none.
tree; echo 'docs/gone.md long=5' > list; expect 0 " 0 errors"
tree; echo 'README.md long=5' > list; expect 1 "README.md: holds the limits, so take it out"
"$here/check_words.py" --tighten . list > /dev/null; expect 0 " 0 listed"
tree; echo 'README.md all of it' > list; expect 1 "list:1: neither a page nor figures"
tree; echo 'README.md length=5' > list; expect 1 "list:1: no such figure: length"
tree; rm -r README.md CONTRIBUTING.md docs; expect 1 "there are no pages"
echo "all as expected"
