#!/usr/bin/env bash
# check_layers.py compared with a made-up tree: what must fail does, and for its reason.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# tree: three layers; low/low.h <- high/high.cpp <- top/top.cpp, and the public header that all include
tree() {
  rm -rf "$work/tree"
  mkdir -p "$work"/tree/{src/{low,high/sub,top},include/pub,bpf}
  cd "$work/tree"
  printf 'include/pub\nsrc/low\nsrc/high\nsrc/high/sub src/top\nbpf\n' > layers
  echo '#pragma once' > include/pub/pub.h
  printf '#include <vector>\n#include "pub/pub.h"\n' > src/low/low.h
  echo '#include "low/low.h"' > src/high/high.h
  echo '  #  include "high/high.h"' > src/high/sub/sub.cpp
  printf '#include "high/high.h"\n#include "low/low.h"\n' > src/top/top.h
  echo '#include "made.skel.h"' > bpf/bpf.h
}

# expect STATUS TEXT: what the script says of the tree as it is, and that it says no more than that
expect() {
  local status=0 output
  output=$("$here/check_layers.py" . layers) || status=$?
  if [ "$status" != "$1" ] || ! grep -qF -- "$2" <<< "$output" || { [ "$status" = 1 ] && ! grep -qE ' 1 errors$' <<< "$output"; }; then
    printf 'line %s: expected status %s and "%s"; status %s and\n%s\n' "${BASH_LINENO[0]}" "$1" "$2" "$status" "$output"
    exit 1
  fi
}

tree; expect 0 "6 includes of 6 files, 0 exceptions, 0 errors"

# Includes of what comes later, by each way of writing them, and into a neighbour.
tree; echo '#include "high/high.h"' >> src/low/low.h; expect 1 "src/low/low.h includes src/high/high.h: src/high stands after src/low"
tree; echo '#include <high/high.h>' >> src/low/low.h; expect 1 "src/low/low.h includes src/high/high.h"
tree; printf '#\tinclude\t"high/high.h"\n' >> src/low/low.h; expect 1 "src/low/low.h includes src/high/high.h"
tree; echo '#include "low/low.h"' >> include/pub/pub.h; expect 1 "include/pub/pub.h includes src/low/low.h"
tree; echo '#include "bpf.h"' > src/low/low.c; expect 1 "src/low/low.c includes bpf/bpf.h"
tree; echo '#include "made.skel.h"' > src/low/low.cpp.in; expect 1 "src/low/low.cpp.in includes bpf/made.skel.h"
tree; touch src/high/sub/sub.h; echo '#include "high/sub/sub.h"' >> src/high/high.h; expect 1 "src/high/sub stands after src/high"
tree; echo '#include "top/top.h"' >> src/high/sub/sub.cpp; expect 1 "src/top stands beside src/high/sub"
tree; echo '// #include "high/high.h"' >> src/low/low.h; expect 0 "0 errors"

# A single file may stand elsewhere than its folder.
tree; echo '#include "plain.h"' >> src/low/low.h; touch bpf/plain.h; expect 1 "src/low/low.h includes bpf/plain.h"
sed -i 's|^include/pub|& bpf/plain.h|' layers; expect 0 "0 errors"

# Headers that are not where they are said to be.
tree; echo '#include "high.h"' >> src/high/sub/sub.cpp; expect 1 'includes "high.h", which is in none of'
tree; touch include/pub/error.h; echo '#include "error.h"' >> include/pub/pub.h; expect 1 'includes "error.h", which is in none of'
tree; touch include/pub/error.h; echo '#include <error.h>' >> include/pub/pub.h; expect 0 "0 errors"

# The list of layers itself.
tree; mkdir src/new; touch src/new/new.cpp; expect 1 "src/new/new.cpp is in no layer"
tree; echo src/gone >> layers; expect 1 "nothing is in src/gone"
tree; echo src/low >> layers; expect 1 "src/low stands here twice"

# Exceptions: with a reason, for one include, as long as it is needed.
up='src/low/low.h includes src/high/high.h'
tree; echo '#include "high/high.h"' >> src/low/low.h; echo "$up  # until it is moved" >> layers; expect 0 "1 exceptions, 0 errors"
echo '#include "top/top.h"' >> src/low/low.h; expect 1 "src/low/low.h includes src/top/top.h"
tree; echo "$up  # until it is moved" >> layers; expect 1 "no longer needed: $up"
tree; echo "$up" >> layers; expect 1 "neither a layer nor"

tree; rm -r src/* include/* bpf/*; : > layers
if "$here/check_layers.py" . layers > /dev/null; then echo "it was content with nothing"; exit 1; fi
echo "all as expected"
