#!/usr/bin/env bash
# cmake/commit.cmake: the commit of a checkout, of one with changes, of a tarball, and of a folder that nobody knows.
# usage: test_commit.sh SOURCE_DIR
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/checkout/cmake" "$work/tarball"
cd "$work/checkout"
cp "$1/cmake/commit.cmake" cmake/
echo '$Format:%H$' > cmake/commit.txt
[ ! -e "$1/.git" ] || cmp cmake/commit.txt "$1/cmake/commit.txt"
echo 'cmake/commit.txt export-subst' > .gitattributes
git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm a
hash=$(git rev-parse HEAD)

# commit_of FOLDER: as the source that is written has it
commit_of() {
  cmake -D SOURCES="$1" -D OUT="$work/commit.cpp" -P "$1/cmake/commit.cmake"
  sed -n 's/.*kCommit = "\(.*\)";$/\1/p' "$work/commit.cpp"
}
expect() { [ "$2" = "$3" ] || { echo "$1: '$2', and not '$3'"; exit 1; }; }
expect "a checkout" "$(commit_of "$work/checkout")" "${hash:0:8}"
touch -d '2020-01-01' "$work/commit.cpp"
commit_of "$work/checkout" > /dev/null
expect "the source of the same commit" "$(date -r "$work/commit.cpp" +%Y)" 2020
git archive HEAD | tar -x -C "$work/tarball"
echo >> .gitattributes
expect "a checkout with changes" "$(commit_of "$work/checkout")" "${hash:0:8}-dirty"
expect "a tarball" "$(commit_of "$work/tarball")" "${hash:0:8}"
cp "$work/checkout/cmake/commit.txt" "$work/tarball/cmake/"
expect "a folder without git" "$(commit_of "$work/tarball")" ""
