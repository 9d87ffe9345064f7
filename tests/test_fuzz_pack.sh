#!/usr/bin/env bash
# fuzz/pack.sh: the same inputs give the same archive, and an input replaces another of its name.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{fuzz,tests/corpus,inputs}
cp "$here/../fuzz/pack.sh" "$work/fuzz"
cd "$work"
archive=tests/corpus/fuzz_x.tar
fail() { echo "line ${BASH_LINENO[0]}: $1"; exit 1; }

for name in b a C; do echo "$name" > "inputs/$name"; done
fuzz/pack.sh fuzz_x inputs/*
[ "$(tar -tf $archive | tr '\n' ' ')" = "C a b " ] || fail "not in the order of names: $(tar -tf $archive)"
cp $archive first.tar

# One by one, in another order, at another time, for other users.
rm $archive
touch -d 2001-01-01 inputs/a
chmod 600 inputs/b
for name in b C a; do (umask 077; fuzz/pack.sh fuzz_x "inputs/$name"); done
cmp $archive first.tar || fail "the same inputs gave another archive"

echo new > inputs/a
fuzz/pack.sh fuzz_x inputs/a
[ "$(tar -xOf $archive a)" = new ] || fail "an input of the same name was not replaced"
[ "$(tar -tf $archive | wc -l)" = 3 ] || fail "other inputs than before: $(tar -tf $archive)"
cp $archive second.tar

# Nothing changes where there is nothing to add.
! fuzz/pack.sh fuzz_x inputs/none 2>/dev/null || fail "an input that is not there was packed"
! fuzz/pack.sh fuzz_x 2>/dev/null || fail "packed without an input"
cmp $archive second.tar || fail "a failed call changed the archive"
[ "$(ls tests/corpus)" = fuzz_x.tar ] || fail "left behind: $(ls tests/corpus)"
echo "all as expected"
