#!/usr/bin/env bash
# check_abi.py on a made-up interface: what breaks programs fails, for its reason, and what does not passes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for program in abidw abidiff; do command -v $program > /dev/null || { echo "SKIPPED: there is no $program"; exit 0; }; done
[ "$(uname -m)" = x86_64 ] || { echo "SKIPPED: the description is that of x86-64"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/include/windlass/c" "$work/tests/abi"
header=$work/include/windlass/c/windlass.h

cat > "$work/first.h" <<'C'
#pragma once
#include <stddef.h>
#define WINDLASS_API __attribute__((visibility("default")))
#define WINDLASS_VERSION_MINOR 1
#define WINDLASS_ALL (1u << 3) /* Every frame. */
enum { WINDLASS_OK = 0, WINDLASS_END = 1, WINDLASS_LAST };
typedef struct windlass_cursor windlass_cursor;
typedef struct windlass_frame {
  size_t size;
  unsigned long pc;
  unsigned long sp;
} windlass_frame;
typedef struct windlass_pair { int x; } windlass_pair; /* Has no size of its own. */
typedef int (*windlass_callback)(const windlass_frame* frame, void* user);
WINDLASS_API int windlass_step(windlass_cursor* cursor, windlass_frame* frame);
WINDLASS_API int windlass_walk(windlass_callback callback,
                               void* user);
WINDLASS_API void windlass_give_up(windlass_pair pair) __attribute__((noreturn));
C
echo 'int windlass_step; int windlass_walk; int windlass_give_up; int windlass_more;' > "$work/library.c"
library() { sed "s/int \(\w*\);/void \1(void) {}/g" "$work/library.c" | cc -shared -fPIC -xc -o "$work/library.so" -; }

# expect STATUS TEXT [SED...]: what the script says of the header after these changes
expect() {
  local status=0 output
  sed "${@:3}" "$work/first.h" > "$header"
  output=$("$here/check_abi.py" "$work" "$work/library.so" 2>&1) || status=$?
  if [ "$status" != "$1" ] || ! grep -qF -- "$2" <<< "$output"; then
    printf 'line %s: expected status %s and "%s"; status %s and\n%s\n' "${BASH_LINENO[0]}" "$1" "$2" "$status" "$output"
    exit 1
  fi
}

sed -i 's/ int windlass_more;//' "$work/library.c"
library
cp "$work/first.h" "$header"
"$here/check_abi.py" --renew "$work" | grep -q '^3 functions described'
expect 0 "3 functions and 4 constants are compatible" -e ''

expect 1 "'unsigned long int lr', at offset 128" -e 's/^  unsigned long sp;/  unsigned long lr;\n&/'
expect 1 "1 data member deletion" -e '/^  unsigned long sp;/d'
expect 1 "type of 'unsigned long int pc' changed" -e 's/unsigned long pc/unsigned short pc/'
expect 1 "type of 'unsigned long int sp' changed" -e 's/unsigned long sp/unsigned int sp/'
expect 1 "type of 'unsigned long int pc' changed" -e 's/unsigned long pc/void* pc/'
expect 0 "are compatible" -e 's/^  unsigned long sp;/&\n  unsigned long lr;/'
expect 1 "type of 'unsigned long int pc' changed" -e 's/^  unsigned long sp;/&\n  unsigned long lr;/; s/unsigned long pc/long pc/'
expect 1 "'int y', at offset 32" -e 's/int x;/int x; int y;/'
expect 1 "parameter 3 of type 'void*' was added" -e 's/callback,$/callback, int flags,/'
expect 1 "return type changed" -e 's/int windlass_step/long windlass_step/'
expect 1 "windlass_callback" -e 's/\(const windlass_frame\* frame\), void\* user/\1/'
expect 1 "WINDLASS_END was 1 and is 2" -e 's/WINDLASS_END = 1/WINDLASS_END = 2/'
expect 1 "WINDLASS_LAST was 2 and is 3" -e 's/WINDLASS_LAST/WINDLASS_MORE, WINDLASS_LAST/'
expect 0 "5 constants are compatible" -e 's/WINDLASS_LAST/WINDLASS_LAST, WINDLASS_MORE/'
expect 1 "WINDLASS_ALL was 8 and is 16" -e 's/1u << 3/1u << 4/'
expect 1 "WINDLASS_ALL was 8 and is gone" -e '/define WINDLASS_ALL/d'
expect 0 "are compatible" -e 's/VERSION_MINOR 1/VERSION_MINOR 2/'
expect 1 "'function void windlass_give_up(windlass_pair)'" -e '/windlass_give_up/d'
expect 1 "windlass_give_up is exported, and no header declares it" -e '/windlass_give_up/d'
expect 1 "windlass_more is declared, and no library exports it" -e 's/^WINDLASS_API void.*/&\nWINDLASS_API int windlass_more(int);/'
expect 1 "cc failed" -e 's/size_t size;/size_t size/'
sed -i 's/$/ int windlass_more;/' "$work/library.c"
library
expect 0 "4 functions and 4 constants are compatible" -e 's/^WINDLASS_API void.*/&\nWINDLASS_API int windlass_more(int);/'
echo "all as expected"
