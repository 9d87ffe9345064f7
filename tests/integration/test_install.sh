#!/usr/bin/env bash
# Installs the build into a folder of its own and builds consumers against it, in C and C++, by CMake and by pkg-config. And compiles
# them as a project that has Windlass as a part. They include <error.h>, which must be the system's and not windlass/error.h.
# usage: test_install.sh BUILD_DIR CONSUMER_DIR SOURCE_DIR
set -euo pipefail
build=$1
consumer=$2
source=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
cmake -G Ninja -S "$consumer" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_STANDARD=23 >"$work/log" || { cat "$work/log"; exit 1; }
cmake --build "$work/cmake" >"$work/log" || { cat "$work/log"; exit 1; }
"$work/cmake/consumer"
"$work/cmake/consumer-c"
if [ -e "$build/src/symbols/libwindlass-symbols.a" ]; then
  "$work/cmake/consumer-symbols"
  "$work/cmake/consumer-symbols-c"
fi

cmake -G Ninja -S "$consumer" -B "$work/part" -DWINDLASS_SOURCE="$source" -DWINDLASS_PROFILER=OFF -DCMAKE_CXX_STANDARD=20 >"$work/log" || { cat "$work/log"; exit 1; }
ninja -C "$work/part" CMakeFiles/consumer.dir/consumer.cpp.o CMakeFiles/consumer-c.dir/consumer.c.o >"$work/log" || { cat "$work/log"; exit 1; }

PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name windlass.pc)")
export PKG_CONFIG_PATH
lib=$(pkg-config --variable=libdir windlass)
# shellcheck disable=SC2046
gcc -std=c99 -Wall -Wextra -Wpedantic -Werror "$consumer/consumer.c" $(pkg-config --cflags --libs windlass) -Wl,-rpath,"$lib" -o "$work/c"
"$work/c"
# shellcheck disable=SC2046
g++ -std=c++20 "$consumer/consumer.cpp" $(pkg-config --cflags --libs windlass++) -o "$work/c++"
"$work/c++"

if [ -e "$lib/libwindlass-symbols.so" ]; then
  # shellcheck disable=SC2046
  gcc -std=c99 -Wall -Wextra -Wpedantic -Werror "$consumer/consumer_symbols.c" $(pkg-config --cflags --libs windlass-symbols) -Wl,-rpath,"$lib" -o "$work/symbols-c"
  "$work/symbols-c"
  # shellcheck disable=SC2046
  g++ -std=c++20 "$consumer/consumer_symbols.cpp" $(pkg-config --cflags --libs windlass-symbols++) -o "$work/symbols-c++"
  "$work/symbols-c++"
fi

# The shared libraries export their C interface, the thread variable that other profilers look for (OTEP 4947), and nothing else.
for library in "$lib/libwindlass.so" "$lib/libwindlass-symbols.so"; do
  if [ -e "$library" ] && nm -D --defined-only "$library" | awk '{print $3}' | grep -vE '^((windlass_[a-z_0-9]+|otel_thread_ctx_v1)@@)?WINDLASS_0$'; then
    echo "$library exports more than the C interface"
    exit 1
  fi
done
if [ -e "$work/prefix/bin/windlass" ]; then
  "$work/prefix/bin/windlass" --version
  for page in man/man1/windlass-record.1 bash-completion/completions/windlass zsh/vendor-completions/_windlass fish/vendor_completions.d/windlass.fish \
      doc/windlass/LICENSE doc/windlass/windlass.spdx.json doc/windlass/schema/report.json; do
    [ -s "$work/prefix/share/$page" ] || { echo "share/$page is not installed"; exit 1; }
  done
fi
