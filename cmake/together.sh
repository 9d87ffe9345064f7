#!/usr/bin/env bash
# Writes OUT: one source of several tests' sources of one program, which compiles in a third of their time. What a file has for itself,
# it has in a namespace of its name instead of an unnamed one, so that two files may each have a kStack.
# usage: together.sh OUT ROOT FILE...      FILE: below ROOT
set -euo pipefail
out=$1 root=$2
shift 2
for file; do
  name=$(basename "$file" .cpp)
  printf '#line 1 "%s"\n' "${file#"$root"/}"
  sed "s/^namespace {\$/namespace of_$name {/" "$file"
done > "$out"
