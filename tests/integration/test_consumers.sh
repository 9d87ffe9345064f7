#!/usr/bin/env bash
# Programs of other projects with the installed library: g++ and clang (another one with each commit; all with WINDLASS_WHOLE=1), languages from C99 to C++23, without exceptions
# and RTTI, with link-time optimisation, with sanitizers, beside libunwind; the examples as a project of their own; and Windlass by
# FetchContent. Each consumer runs. Prints the command and the first error of each that fails, and how many did not.
# usage: test_consumers.sh BUILD_DIR CONSUMER_DIR SOURCE_DIR
set -euo pipefail
build=$1
consumer=$2
source=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" > "$work/log" || { cat "$work/log"; exit 1; }
PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name windlass.pc)")
export PKG_CONFIG_PATH work
c_library="$(pkg-config --cflags --libs windlass) -Wl,-rpath,$(pkg-config --variable=libdir windlass)"
cpp_library=$(pkg-config --cflags --libs windlass++)
strict="-Wall -Wextra -Wpedantic -Werror"

# links COMMAND...: can it make a program of an empty main()?
links() { echo 'int main() { return 0; }' | "$@" -x c - -o "$work/empty" > "$work/said" 2>&1 && "$work/empty"; }

# ways COMPILER: the command lines of it, without the output.
ways() {
  local cpp=$1 c=${1/clang++/clang}
  c=${c/g++/gcc}
  local way beside=''
  links "$c" -lunwind && beside='-Wl,--no-as-needed -lunwind'
  for way in -std=c99 -std=c11 "-O2 -flto"; do
    echo "$c $way $strict $consumer/consumer.c $c_library"
  done
  for way in -std=c++17 "-std=c++17 -fno-exceptions -fno-rtti"; do
    echo "$cpp $way $strict $work/consumer_c.cpp $c_library"
  done
  for way in -std=c++20 "-std=c++20 -fno-exceptions -fno-rtti" "-std=c++20 -O2 -flto" "-std=c++2b -static-libgcc -static-libstdc++"; do
    echo "$cpp $way $strict $consumer/consumer.cpp $cpp_library"
  done
  [ -z "$beside" ] || echo "$cpp -std=c++20 $strict $consumer/consumer.cpp $beside $cpp_library"
  for way in address,undefined thread; do
    ! links "$c" -fsanitize=$way || echo "$cpp -std=c++2b -g -fsanitize=$way $strict $consumer/consumer.cpp $cpp_library"
  done
}
cp "$consumer/consumer.c" "$work/consumer_c.cpp"
clangs=()
for compiler in clang++-14 clang++-19 clang++-22; do
  if links "$compiler"; then clangs+=("$compiler"); else echo "not here: $compiler"; fi
done
commit=$(git -C "$source" rev-parse --short=4 HEAD 2> /dev/null || echo 0)
turn=${clangs:+${clangs[16#$commit % ${#clangs[@]}]}}
[ -z "${WINDLASS_WHOLE:-}" ] || turn=${clangs[*]}
for compiler in g++ $turn; do
  ways "$compiler"
done > "$work/commands"

# one COMMAND: compiles and runs it
one() {
  local said program=$work/program.$BASHPID
  # shellcheck disable=SC2086
  said=$($1 -o "$program" 2>&1 && "$program" 2>&1) && { rm "$program"; return; }
  printf '%s\n  %s\n' "${1//$work/...}" "$(grep -m1 -E 'error|undefined|fatal|WARNING' <<< "$said" || tail -n 1 <<< "$said")"
  return 1
}
export -f one
xargs -P "$(nproc)" -d '\n' -n 1 bash -c 'one "$1"' one < "$work/commands" || exit 1

# made COMMAND...: the output only if it fails
made() { "$@" > "$work/log" 2>&1 || { tail -n 40 "$work/log"; exit 1; }; }
made cmake -G Ninja -S "$source/examples" -B "$work/examples" -DCMAKE_PREFIX_PATH="$work/prefix"
made cmake --build "$work/examples" --target example_own_stack example_own_stack_cpp example_jit_code_cpp
"$work/examples/example_own_stack" > "$work/log" || { cat "$work/log"; exit 1; }

mkdir "$work/fetching"
cp "$consumer/consumer.cpp" "$work/fetching"
cat > "$work/fetching/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(fetching LANGUAGES C CXX)
include(FetchContent)
FetchContent_Declare(windlass SOURCE_DIR $source)
set(WINDLASS_PROFILER OFF)
FetchContent_MakeAvailable(windlass)
add_executable(consumer consumer.cpp)
target_compile_features(consumer PRIVATE cxx_std_20)
target_link_libraries(consumer PRIVATE windlass::windlass)
CMAKE
made cmake -G Ninja -S "$work/fetching" -B "$work/fetched"
made ninja -C "$work/fetched" CMakeFiles/consumer.dir/consumer.cpp.o
echo "$(wc -l < "$work/commands") consumers, the examples, FetchContent: 0 errors"
