#!/bin/sh
# fetch_npm_package.sh NAME VERSION INTEGRITY DESTINATION
# Unpacks one npm package into DESTINATION, through the machine's ordinary npm configuration, if its tarball has the
# given integrity ("sha512-<base64>", as the registry's metadata and lock files write it). Exit 1: npm or the registry is
# out of reach. Exit 2: the tarball is not the one that was asked for.
set -eu
name=$1 version=$2 integrity=$3 destination=$4
command -v npm >/dev/null || { echo "npm is not installed"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
timeout 120 npm pack --loglevel=error --prefer-offline --fetch-retries=1 --fetch-timeout=30000 "$name@$version" \
  >pack.out 2>pack.err || { echo "npm pack $name@$version failed: $(grep -m 1 . pack.err || true)"; exit 1; }
tarball=$(ls ./*.tgz)
found=$(node -e 'const c = require("crypto"), f = require("fs");
  process.stdout.write("sha512-" + c.createHash("sha512").update(f.readFileSync(process.argv[1])).digest("base64"))' "$tarball")
[ "$found" = "$integrity" ] || { echo "$name@$version has integrity $found, expected $integrity"; exit 2; }
mkdir -p "$destination"
tar -xzf "$tarball" -C "$destination" --strip-components=1
printf '%s\n' "$integrity" >"$destination/.integrity"
