#!/usr/bin/env bash
# check_messages.py on a made-up tree and command: what must fail does, and for its reason.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# tree: a source, pages that have its texts, and a command that prints them
tree() {
  rm -rf "$work/tree"
  mkdir -p "$work"/tree/{docs/reference,src/cli}
  cd "$work/tree"
  printf '%s\n' '// "no text of a comment"' '#include "no text of that"' 'say("windlass: {}: cannot do "' \
    '    "it, {} times. Way out: try again\n", name);' 'static_assert(true, "text for the compiler");' \
    'option.add_flag("--x", x, "help of an option");' > src/cli/a.cpp
  printf 'fail(Code::kBad, "a file is \\"bad\\"", 0);\n' > src/cli/b.cpp
  printf '# Messages\n\n```console\n$ windlass 3\nwindlass: a: cannot do it, N times. ...\n```\n\n| text | way out |\n|---|---|\n| `windlass: FILE: cannot do it, N times` | try again |\n' \
    > docs/reference/messages.md
  : > docs/reference/refusals.md
  printf '```text\na file is "bad"\n```\n' > docs/reference/reasons.md
  : > list
  printf '#!/bin/sh\n[ "$1" != doctor ] || exit 3\necho begun\necho "windlass: a: cannot do it, $1 times. Way out: try again" >&2\n' > command
  chmod +x command
}

# expect MODE STATUS TEXT...: what the script says of the tree as it is
expect() {
  local status=0 output text arguments=(sources . list)
  [ "$1" = sources ] || arguments=(provoke . ./command)
  output=$("$here/check_messages.py" "${arguments[@]}" 2>&1) || status=$?
  for text in "${@:3}"; do
    if [ "$status" != "$2" ] || ! grep -qF -- "$text" <<< "$output"; then
      printf 'line %s: expected status %s and "%s"; status %s and\n%s\n' "${BASH_LINENO[0]}" "$2" "$text" "$status" "$output"
      exit 1
    fi
  done
}

tree; expect sources 0 "2 texts in the sources, 0 errors"; expect provoke 0 "1 blocks, 0 left out, 0 failed"

# Each text of the sources is on a page, its way out beside it.
tree; sed -i 's/| try again |/| again |/' docs/reference/messages.md; expect sources 1 'src/cli/a.cpp:3: on no page of the messages: "windlass: {}: cannot do it'
tree; : > docs/reference/reasons.md; expect sources 1 'src/cli/b.cpp:1: on no page of the messages: "a file is "bad""'
tree; echo 'say("another text");' >> src/cli/b.cpp; expect sources 1 "src/cli/b.cpp:2: "

# What is left out, and a list that is out of date.
tree; : > docs/reference/reasons.md; echo 'src/cli/b.cpp: "a file is "bad""  # a reason' > list; expect sources 0 "1 texts in the sources, 0 errors"
echo 'src/cli/  # a reason' > list; expect sources 0 "0 texts in the sources, 0 errors"
tree; echo 'src/cli/c  # a reason' > list; expect sources 1 "list: nothing in the sources for src/cli/c"
tree; echo 'src/cli/b.cpp: "gone"  # a reason' > list; expect sources 1 'list: nothing in the sources for src/cli/b.cpp: "gone"'
tree; echo 'src/cli/b.cpp' > list; expect sources 1 "list:1: neither"

# A list of a page that is out of date.
tree; sed -i 's/^```$/gone from it\n```/' docs/reference/reasons.md; expect sources 1 "docs/reference/reasons.md:3: no such text in the sources: gone from it"

# A message that is not printed: another one, none, or in another order.
tree; sed -i 's/^windlass: a: cannot/windlass: a: could not/' docs/reference/messages.md; expect provoke 1 "docs/reference/messages.md:3: not printed:" "windlass: a: could not do it" "windlass: a: cannot do it, 3 times" "1 failed"
tree; sed -i 's/N times\. \.\.\.$/N times/' docs/reference/messages.md; expect provoke 1 "not printed"
tree; sed -i 's/^\$ windlass 3/$ windlass many/' docs/reference/messages.md; expect provoke 1 "not printed"
tree; printf '#!/bin/sh\nexit 1\n' > command; expect provoke 1 "not printed"
tree; sed -i '/^windlass: a/s/$/\nbegun/' docs/reference/messages.md; expect provoke 1 "  begun"
tree; sed -i '/^windlass: a/s/^/begun\n/' docs/reference/messages.md; expect provoke 0 "0 failed"
tree; sed -i '/^windlass: a/d' docs/reference/messages.md; expect provoke 1 "1 failed"

# What the machine does not allow is left out, and said.
tree; sed -i 's/^```console/<!-- needs: sampling -->\n&/' docs/reference/messages.md; echo '```console' >> docs/reference/refusals.md
printf '$ windlass 4\nbegun\n```\n' >> docs/reference/refusals.md
expect provoke 0 "docs/reference/messages.md:4: left out, this machine does not allow: sampling" "SKIPPED: " "1 blocks, 1 left out, 0 failed"
sed -i 's/^begun$/gone/' docs/reference/refusals.md; expect provoke 1 "1 failed"
tree; : > docs/reference/messages.md; expect provoke 1 "0 blocks"
echo "all as expected"
