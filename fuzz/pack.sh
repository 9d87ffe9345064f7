#!/usr/bin/env bash
# Adds inputs to a fuzzer's kept corpus: fuzz/pack.sh fuzz_cfi build/fuzz-artifacts/fuzz_cfi-crash-1b2c...
# Inputs keep their names, and replace inputs of the same name. The same inputs give the same bytes: order, times and
# owners are fixed. The archive is not compressed, so that git stores only what a new input adds.
set -eu -o pipefail
if [ $# -lt 2 ]; then
  echo "usage: $0 FUZZER INPUT..." >&2
  exit 2
fi
archive=$(dirname "$0")/../tests/corpus/$1.tar
shift
inputs=$(mktemp -d)
trap 'rm -r "$inputs" "$archive.new" 2>/dev/null || true' EXIT
[ ! -e "$archive" ] || tar -xf "$archive" -C "$inputs"
cp -- "$@" "$inputs"
(cd "$inputs" && find . -type f -printf '%f\0') | LC_ALL=C sort -z |
  tar --create --file="$archive.new" --directory="$inputs" --null --verbatim-files-from --files-from=- \
    --format=ustar --blocking-factor=1 --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=0644
mv "$archive.new" "$archive"
