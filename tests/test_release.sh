#!/usr/bin/env bash
# ./release takes only a changelog whose newest section is that of VERSION with a date, or --trial; and no other options.
# usage: test_release.sh SOURCE_DIR
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$1/release" "$work"
cd "$work"
git init -q .  # release is in no commit, which is refused last
echo 0.3.0 > VERSION
# says TEXT SECTION OPTION...: release refuses, with TEXT, where SECTION is the newest one.
says() {
  local text=$1 said
  printf '# Changelog\n\n## %s\n\n## 0.2.0 (2026-11-01)\n' "$2" > CHANGELOG.md
  said=$(./release "${@:3}" 2>&1) && { echo "$2 ${*:3}: not refused"; exit 1; }
  case $said in *"$text"*) ;; *) echo "$2 ${*:3}: $said"; exit 1 ;; esac
}
changes='there are changes that are in no commit'
says "the newest section of CHANGELOG.md is '0.3.0 (unreleased)'" '0.3.0 (unreleased)'
says "the newest section of CHANGELOG.md is '0.4.0 (2026-12-01)', and VERSION 0.3.0" '0.4.0 (2026-12-01)' --no-deb
says "$changes" '0.3.0 (2026-12-01)'
says "$changes" '0.3.0 (2026-12-01)' --no-deb
says "$changes" '0.3.0 (unreleased)' --trial --no-deb
says 'usage: ./release' '0.3.0 (2026-12-01)' --no-debs
git -c user.name=a -c user.email=a@b -c commit.gpgsign=false commit -q --allow-empty -m one
git tag 0.3.0
says "$changes" '0.3.0 (2026-12-01)'
git -c user.name=a -c user.email=a@b -c commit.gpgsign=false commit -q --allow-empty -m two
says 'the tag 0.3.0 is that of another commit' '0.3.0 (2026-12-01)'
says "$changes" '0.3.0 (2026-12-01)' --trial
[ ! -e out ] || { echo "a refused release has written files"; exit 1; }
echo "nine refusals"
