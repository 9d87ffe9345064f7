# Sourced by scripts that unpack Debian packages of any architecture: an apt of its own, whose state is in a folder. Nothing is
# installed, and the machine's own package state is neither used nor changed. Where one fails, foreign_apt_error says why.
#
#   foreign_apt_open ARCHITECTURE FOLDER   before the others: fetches the lists into FOLDER/apt
#   foreign_apt_depends PACKAGE PREFIX     the first package beginning with PREFIX that PACKAGE depends on, in foreign_apt_found
#   foreign_apt_unpack PACKAGE...          unpacks into FOLDER; FOLDER/packages names each with its version
#   foreign_apt_close                      removes lists and archives

foreign_apt_fail() {
  foreign_apt_error=$*
  return 1
}

foreign_apt_open() {
  if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg-deb >/dev/null 2>&1; then
    foreign_apt_fail "no apt here to get packages for $1 with"
    return
  fi
  mkdir -p "$2/apt/lists/partial" "$2/apt/cache/archives/partial"
  foreign_folder=$(cd "$2" && pwd)
  local apt=$foreign_folder/apt
  : > "$apt/status"
  foreign_options=(-o "APT::Architecture=$1" -o "APT::Architectures=$1" -o "Dir::State=$apt" -o "Dir::State::lists=$apt/lists"
                   -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none
                   -o APT::Update::Error-Mode=any -o Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false)
  apt-get -qq "${foreign_options[@]}" update >"$apt/log" 2>&1 ||
    foreign_apt_fail "the package archive has no list for $1: $(tail -n 1 "$apt/log")"
}

foreign_apt_depends() {
  foreign_apt_found=$(apt-cache "${foreign_options[@]}" depends "$1" 2>/dev/null |
    awk -v prefix="$2" '$1 == "Depends:" && index($2, prefix) == 1 && !found { print $2; found = 1 }')
  [ -n "$foreign_apt_found" ] || foreign_apt_fail "the archive has no $1 that depends on some $2..."
}

foreign_apt_unpack() {
  local apt=$foreign_folder/apt deb
  (cd "$apt" && apt-get -qq "${foreign_options[@]}" download "$@") >"$apt/log" 2>&1 ||
    { foreign_apt_fail "download failed: $(tail -n 1 "$apt/log")"; return; }
  for deb in "$apt"/*.deb; do
    dpkg-deb -x "$deb" "$foreign_folder" || { foreign_apt_fail "$deb cannot be unpacked (is the disk full?)"; return; }
    dpkg-deb -f "$deb" Package Version | paste - - >> "$foreign_folder/packages"
    rm "$deb"
  done
}

foreign_apt_close() {
  rm -rf "$foreign_folder/apt"
}
