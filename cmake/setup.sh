# Sourced by ./demo and ./test. Installs what packages.txt lists and is missing; says what it does.
# Usage: windlass_setup build [test]

say() { printf '\033[1m== %s\033[0m\n' "$*"; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# The packages of the named sections that this machine lacks.
missing_packages() {
  local section='' line package command
  while IFS= read -r line; do
    line=${line%%#*}
    line=${line//[[:space:]]/}
    case $line in
      '') continue ;;
      '['*']') section=${line//[\[\]]/}; continue ;;
    esac
    case " $* " in *" $section "*) ;; *) continue ;; esac
    package=${line%%\?*}
    command=
    case $line in *\?*) command=${line#*\?} ;; esac
    if [ -n "$command" ]; then
      command -v "$command" >/dev/null 2>&1 || echo "$package"
    elif ! dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed$'; then
      echo "$package"
    fi
  done < packages.txt
}

windlass_setup() {
  if ! command -v apt-get >/dev/null 2>&1; then
    say "not a Debian machine: install the packages of packages.txt by your own means"
    return 0
  fi
  local missing
  missing=$(missing_packages "$@")
  if [ -z "$missing" ]; then
    say "all packages are installed"
    return 0
  fi
  say "installing" $missing
  as_root apt-get update -qq
  # shellcheck disable=SC2086
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

# Configures and builds a preset; ccache is used where it is installed.
windlass_build() {
  local preset=$1
  shift
  local launcher=()
  command -v ccache >/dev/null 2>&1 && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)
  say "configuring and building preset '$preset'"
  cmake --preset "$preset" "${launcher[@]}" >"build/$preset.configure.log" 2>&1 || {
    cat "build/$preset.configure.log"
    return 1
  }
  cmake --build --preset "$preset" -j "$(nproc)" "$@"
}
