#!/usr/bin/env bash
# Makes the RPM packages from a build that is there, reads them with rpmlint, and unpacks them into an empty folder. The command then
# runs from that folder, and a program in C is compiled with its files.
# usage: test_rpm.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source=$1 build=$2
skip() { echo "SKIPPED: $*"; exit 0; }
fail() { echo "$*"; exit 1; }
for program in rpmbuild rpm2cpio rpmlint cpio; do command -v $program > /dev/null || skip "there is no $program"; done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
spec=$source/packaging/windlass.spec
version=$(rpmspec -q --srpm --qf '%{version}' "$spec")
[ "$version" = "$(cat "$source/VERSION")" ] || fail "packaging/windlass.spec has version $version, and VERSION $(cat "$source/VERSION")"

# Debian's rpm knows no package of Debian, hence --nodeps, and a build here may have its libraries elsewhere than a Fedora.
libdir=/usr/$(sed -n 's/^CMAKE_INSTALL_LIBDIR:PATH=//p' "$build/CMakeCache.txt")
rpmbuild -bb --nodeps --define "_topdir $work" --define "windlass_built $build" --define "_libdir $libdir" --define 'debug_package %{nil}' \
  "$spec" > "$work/log" 2>&1 || { tail -n 30 "$work/log"; fail "rpmbuild failed"; }
mapfile -t packages < <(find "$work/RPMS" -name '*.rpm' | LC_ALL=C sort)
[ "${#packages[@]}" -eq 3 ] || fail "${#packages[@]} packages, and not 3: ${packages[*]}"
found=$(rpmlint -c "$source/packaging/rpmlint.toml" "$spec" "${packages[@]}" 2>&1) || { echo "$found"; fail "rpmlint finds something"; }
grep -q ' 0 errors, 0 warnings' <<< "$found" || { echo "$found"; fail "rpmlint finds something"; }

mkdir "$work/root"
for package in "${packages[@]}"; do
  rpm -qlp "$package" >> "$work/listed"
  rpm2cpio "$package" | (cd "$work/root" && cpio -idm --quiet)
done
while read -r file; do
  [ -e "$work/root$file" ] || [ -L "$work/root$file" ] || fail "$file is listed, and not in the package"
done < "$work/listed"
for file in /usr/bin/windlass /etc/windlass/agent.conf /usr/lib/systemd/system/windlass-{agent,record}.service /usr/share/licenses/windlass/LICENSE \
    /usr/share/doc/windlass/windlass.spdx.json "$libdir/libwindlass.so.0"; do
  grep -qx "$file" "$work/listed" || fail "$file is in no package"
done
rpm -qp --requires "${packages[@]}" > "$work/requires"
grep -q "^windlass-libs.* = $version-" "$work/requires" || fail "windlass-devel does not need windlass-libs"

cd "$work/root/usr"
./bin/windlass --version
./bin/windlass dump ./bin/windlass > "$work/dumped"
grep -q DW_CFA_def_cfa "$work/dumped" || fail "the command of the package dumps no unwind information"
cat > "$work/c.c" <<'C'
#include <stdio.h>
#include <windlass/c/windlass.h>
int main(void) { return puts(windlass_version_text()) < 0; }
C
export PKG_CONFIG_PATH=$work/root$libdir/pkgconfig LD_LIBRARY_PATH=$work/root$libdir
# shellcheck disable=SC2046
cc -Wall -Werror "$work/c.c" $(pkg-config --cflags --libs windlass) -o "$work/c"
[ "$("$work/c")" = "$version" ] || fail "the library's version is not $version"
