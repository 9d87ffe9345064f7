#!/usr/bin/env bash
# check_links.py on a made-up tree: what must fail does, and for its reason.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# tree: two pages that lead to each other, a source that names one
tree() {
  rm -rf "$work/tree"
  mkdir -p "$work"/tree/{docs/how-to,src}
  cd "$work/tree"
  printf '# Title\n\nSee [how](docs/how-to/walk.md#two-ways-to-walk), [here](#title), [code](src/walk.cpp).\n' > README.md
  printf '# Walk\n\n## Two ways to `walk`\n\n## Two ways to `walk`\n\n[Back](../../README.md) or [`code`](https://example.org)\n' > docs/how-to/walk.md
  echo '// docs/how-to/walk.md has the ways.' > src/walk.cpp
}

# expect STATUS TEXT...: what the script says of the tree as it is
expect() {
  local status=0 output text
  output=$("$here/check_links.py" . 2>&1) || status=$?
  for text in "${@:2}"; do
    if [ "$status" != "$1" ] || ! grep -qF -- "$text" <<< "$output"; then
      printf 'line %s: expected status %s and "%s"; status %s and\n%s\n' "${BASH_LINENO[0]}" "$1" "$text" "$status" "$output"
      exit 1
    fi
  done
}

tree; expect 0 "4 links of 2 pages, 1 mentions of pages, 0 errors"

# What is not there, with its line.
tree; echo '[gone](docs/gone.md)' >> README.md; expect 1 "README.md:4: docs/gone.md is not there" " 1 errors"
tree; echo '[gone](#gone)' >> README.md; expect 1 "README.md:4: #gone: there is no such heading"
tree; echo '[the third](docs/how-to/walk.md#two-ways-to-walk-2)' >> README.md; expect 1 "README.md:4: docs/how-to/walk.md#two-ways-to-walk-2: there is no such heading"
tree; echo '[outside](../x.md)' >> README.md; touch ../x.md; expect 1 "README.md:4: ../x.md is not there"
tree; printf '| [`a`](gone.c) | [b](#title) |\n' >> README.md; expect 1 "README.md:4: gone.c is not there" "6 links"
tree; printf '\n[name]: gone.md\n' >> README.md; expect 1 "README.md:5: gone.md is not there"
tree; printf '// See\n// docs/reference/gone.md.\n' >> src/walk.cpp; expect 1 "src/walk.cpp:3: docs/reference/gone.md is not there"
tree; rm src/walk.cpp; expect 1 "README.md:3: src/walk.cpp is not there"

# The second heading of a name; code and comments, which hold no links.
tree; echo '[the second](docs/how-to/walk.md#two-ways-to-walk-1)' >> README.md; expect 0 "5 links"
tree; printf '`[x](gone.md)`\n\n```\n[x](gone.md)\n# no heading\n```\n<!-- [x](gone.md) -->\n' >> README.md; expect 0 "4 links"
echo '[no](#no-heading)' >> README.md; expect 1 "README.md:11: #no-heading: there is no such heading"

# Names of other projects' pages.
tree; echo '// dotnet/runtime, docs/design/Thread.md; https://example.org/docs/how-to/x.md' >> src/walk.cpp; expect 0 "1 mentions"

tree; echo '# Title' > README.md; echo > docs/how-to/walk.md; expect 1 "there are no links"
echo "all as expected"
