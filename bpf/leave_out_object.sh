#!/bin/sh
# leave_out_object.sh SKELETON: NAME__elf_bytes() of a libbpf skeleton, which has the object as a literal, calls
# NAME_object() in its place.
set -eu
awk '
  /__elf_bytes\(size_t \*sz\)$/ {
    match($0, /[A-Za-z0-9_]+__elf_bytes/)
    object = substr($0, RSTART, RLENGTH - length("__elf_bytes")) "_object"
    print "const void *" object "(size_t *sz);\n" $0 "\n{\n\treturn " object "(sz);\n}"
    within = 1
  }
  !within { print }
  within && /^}/ { within = 0 }
' "$1" > "$1.without"
grep -q '_object(sz);' "$1.without"
mv "$1.without" "$1"
