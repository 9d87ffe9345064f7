# Sourced by ./demo and ./test. Installs what packages.txt lists and is missing, and never at the cost of a package that is there;
# says what it does.
# Usage: windlass_setup build [test]

say() { printf '\033[1m== %s\033[0m\n' "$*"; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Whether one of the packages a|b... is installed.
one_is_installed() {
  local name
  for name in ${1//|/ }; do
    dpkg-query -W -f='${Status}\n' "$name" 2>/dev/null | grep -q '^install ok installed$' && return
  done
  return 1
}

# The packages of the named sections that this machine lacks. Names of one package in several distributions are joined by '|'.
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
    elif ! one_is_installed "$package"; then
      echo "$package"
    fi
  done < packages.txt
}

# The name that this distribution gives each package: of a|b the first that apt can install, else the first.
names_here() {
  local package name found
  for package; do
    found=${package%%|*}
    case $package in
      *'|'*) for name in ${package//|/ }; do
               LC_ALL=C apt-get install -s --no-install-recommends "$name" >/dev/null 2>&1 && { found=$name; break; }
             done ;;
    esac
    echo "$found"
  done
}

# What the simulated installation on standard input would remove, a package a line.
removals() { sed -nE 's/^(Remv|Purg) ([^ ]+).*/\2/p'; }

# removed_by PACKAGE...: what apt would remove to install these. Fails, with apt's words, where it cannot install them.
removed_by() {
  local simulation
  simulation=$(LC_ALL=C apt-get install -s --no-install-recommends "$@" 2>&1) || {
    echo "$simulation" >&2
    return 1
  }
  removals <<< "$simulation"
}

# Fails, and says for which of these packages and what to do, where apt would remove others to install them: Debian's gcc-multilib,
# for one, and its cross compilers exclude each other.
refuse_removals() {
  local removed package its culprits=''
  removed=$(removed_by "$@") || {
    say "nothing is installed: apt cannot install" "$@"
    return 1
  }
  [ -n "$removed" ] || return 0
  removed=${removed//$'\n'/ }
  say "nothing is installed: apt would remove packages of this machine: $removed"
  for package; do
    its=$(removed_by "$package" 2>/dev/null) || continue
    [ -n "$its" ] || continue
    echo "  for $package: ${its//$'\n'/ }"
    culprits+=" $package"
  done
  [ -n "$culprits" ] || { echo "  for these together: $*"; culprits=" $*"; }
  cat <<TEXT
Ways out:
  - start this in a container or a virtual machine of its own;
  - if this machine can do without them, remove them first: sudo apt-get remove $removed
  - do without, and take out of packages.txt:$culprits
    (those of [test] only: ./test counts what it then cannot do as skipped without leave)
TEXT
  return 1
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
  as_root apt-get update -qq
  # shellcheck disable=SC2046,SC2086
  set -- $(names_here $missing)
  say "installing" "$@"
  refuse_removals "$@" || return
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-remove --no-install-recommends "$@" >/dev/null
}

# Configures and builds a preset; ccache is used where it is installed. It knows a file by its path in this folder, so that one checkout
# gets what another has compiled, and takes precompiled headers.
windlass_build() {
  local preset=$1
  shift
  local launcher=()
  command -v ccache >/dev/null 2>&1 && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache)
  local -x CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
  say "configuring and building preset '$preset'"
  cmake --preset "$preset" "${launcher[@]}" >"build/$preset.configure.log" 2>&1 || {
    cat "build/$preset.configure.log"
    return 1
  }
  cmake --build --preset "$preset" -j "$(nproc)" "$@"
}
