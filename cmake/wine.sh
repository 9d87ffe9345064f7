#!/bin/sh
# wine.sh BUILD PROGRAM ARGUMENTS: runs a Windows x64 program under Wine, with the prefix BUILD/wine.
# wine.sh BUILD --end: ends that prefix's wineserver and nothing else.
# Exit status 77 and a sentence where there is no Wine.
set -u
WINEPREFIX=$(cd "$1" && pwd)/wine || exit 2
shift
export WINEPREFIX
export WINEDEBUG="${WINEDEBUG:--all}" WINEDLLOVERRIDES="mscoree=;mshtml=;winemenubuilder.exe="
unset DISPLAY WAYLAND_DISPLAY
for wine in /usr/lib/wine/wine64 "$(command -v wine64)" "$(command -v wine)"; do
  [ -x "$wine" ] && break
done
[ -x "$wine" ] || { echo "SKIPPED: there is no Wine" >&2; exit 77; }
if [ "$1" = --end ]; then
  [ -d "$WINEPREFIX" ] || exit 0
  for server in /usr/lib/wine/wineserver64 /usr/lib/wine/wineserver "$(command -v wineserver)"; do
    [ -x "$server" ] && "$server" -k && break  # fails if it has gone by itself
  done
  exit 0
fi
exec "$wine" "$@"
