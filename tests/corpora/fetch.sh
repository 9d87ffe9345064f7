# Sourced by the scripts that fetch packages for tests, in the folder where these are kept. `missing_things`: a file with
# what is out of reach. `failed`: a package was not the one that is pinned.
missing_things=$PWD/missing
: >"$missing_things"
failed=0

missing() {
  echo "SKIPPED $1: $2"
  echo "$1: $2" >>"$missing_things"
}

# debian_package FOLDER PACKAGE VERSION SHA256 PATTERN: only the files that match
debian_package() {
  [ "$(cat "$1/.sha256" 2>/dev/null)" = "$4" ] && return
  rm -rf "$1" && mkdir -p "$1"
  (cd "$1" && timeout 300 apt-get -q -o Acquire::Retries=1 download "$2=$3" >.log 2>&1) ||
    { missing "$1" "apt-get download $2=$3 failed: $(grep -m 1 '^E:' "$1/.log" || true)"; rm -rf "$1"; return; }
  deb=$(ls "$1"/*.deb)
  found=$(sha256sum "$deb" | cut -d ' ' -f 1)
  if [ "$found" != "$4" ]; then
    echo "$2=$3 has SHA-256 $found, expected $4"
    rm -rf "$1"
    failed=1
    return
  fi
  dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$1" --wildcards "$5" || failed=1
  rm -f "$deb" "$1/.log"
  echo "$4" >"$1/.sha256"
}

# The exit status of the script: 3 if something was out of reach.
end_of_fetching() {
  [ $failed -eq 0 ] || exit 1
  [ ! -s "$missing_things" ] || exit 3
  exit 0
}
