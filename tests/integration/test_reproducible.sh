#!/usr/bin/env bash
# Builds targets twice from copies of the sources, and compares what comes out, byte by byte. The folder, the time, the time zone, the
# locale, the umask, the user's name and the home directory differ.
# usage: test_reproducible.sh SOURCE_DIR BUILD_DIR COMMAND TARGET...
set -euo pipefail
source=$1 build=$2 command=$3
targets=("${@:4}")
skip() { echo "SKIPPED: $*"; exit 0; }
for program in faketime git; do command -v $program > /dev/null || skip "there is no $program"; done
git -C "$source" rev-parse HEAD > /dev/null 2>&1 || skip "the sources are in no repository of git"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
one=$work/one two=$work/another/folder
mkdir -p "$one" "$two/home"
plainly() { (umask 022 && "$@"); }
elsewhere() { (umask 027 && TZ=Asia/Tokyo LC_ALL=C.UTF-8 USER=somebody LOGNAME=somebody HOME=$two/home NO_FAKE_STAT=1 faketime '2031-05-06 07:08:09' "$@"); }

# Compilers without a cache.
configured_and_built() {
  cmake -G Ninja -S "$1" -B "$1/build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_{C,CXX}_FLAGS_RELWITHDEBINFO="-O2 -g1 -DNDEBUG" \
    -DWINDLASS_REPRODUCIBLE=ON -DWINDLASS_TESTS=OFF -DWINDLASS_STATIC=AUTO -DWINDLASS_TOGETHER=ON -DWINDLASS_PRECOMPILED_HEADERS=ON &&
    cmake --build "$1/build" --target "${@:2}"
}
export -f configured_and_built
unset CMAKE_CXX_COMPILER_LAUNCHER CMAKE_C_COMPILER_LAUNCHER
# built HOW FOLDER: configures and builds there. What is fetched is taken from the build that is there.
built() {
  git -C "$source" ls-files -z | tar -C "$source" --null -cT - | tar -x -C "$2"
  mkdir -p "$2/build"
  for fetched in web zydis; do [ ! -d "$build/$fetched" ] || cp -r "$build/$fetched" "$2/build/"; done
  "$1" bash -c 'configured_and_built "$@"' build "$2" "${targets[@]}" > "$2.log" 2>&1 || { tail -n 20 "$2.log"; exit 1; }
}
# written HOW FOLDER: what needs no compiler.
written() {
  mkdir "$2/written"
  "$1" "$command" help --man-pages "$2/written"
  "$1" "$command" completion bash > "$2/written/completion"
  "$1" python3 "$2/cmake/sbom.py" "$command" "$2/src" 0 > "$2/written/sbom"
  "$1" git -C "$source" archive --format=tar --prefix=windlass/ HEAD | "$1" gzip -9n > "$2/written/sources.tar.gz"
  "$1" "$source/debian/changelog.py" "$2/written/changelog" > /dev/null
}
for step in built written; do
  $step plainly "$one"
  $step elsewhere "$two"
done

# made FOLDER: the files to compare, and not those that CMake and Ninja keep for themselves.
made() { (cd "$1" && find written build \( -name '*.o' -o -name '*.a' -o -name '*.so*' -o -name '*.skel.h' -o -path 'build/static/*' -o -path 'written/*' \) -type f | LC_ALL=C sort); }
diff <(made "$one") <(made "$two") || { echo "other files are made"; exit 1; }
count=0 differ=0
while read -r file; do
  count=$((count + 1))
  cmp -s "$one/$file" "$two/$file" || { echo "$file differs"; differ=$((differ + 1)); }
done < <(made "$one")
[ "$count" -ge 20 ] || { echo "$count files only"; exit 1; }
[ "$differ" -eq 0 ] || exit 1
echo "$count files are the same from another folder, at another time"
