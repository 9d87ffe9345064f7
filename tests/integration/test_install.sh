#!/usr/bin/env bash
# Installs the build into a folder of its own and builds a consumer against it, by CMake and by pkg-config.
# usage: test_install.sh BUILD_DIR CONSUMER_DIR
set -euo pipefail
build=$1
consumer=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
cmake -G Ninja -S "$consumer" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_CXX_STANDARD=23 >"$work/log" || { cat "$work/log"; exit 1; }
cmake --build "$work/cmake" >"$work/log" || { cat "$work/log"; exit 1; }
"$work/cmake/consumer"

pc=$(dirname "$(find "$work/prefix" -name windlass.pc)")
sed -i "s|^prefix=.*|prefix=$work/prefix|" "$pc/windlass.pc"
# shellcheck disable=SC2046
g++ -std=c++23 "$consumer/consumer.cpp" $(PKG_CONFIG_PATH=$pc pkg-config --cflags --static --libs windlass) -o "$work/by-pkg-config"
"$work/by-pkg-config"
"$work/prefix/bin/windlass" --version
