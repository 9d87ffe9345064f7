#!/bin/sh
# fetch_lisp.sh DIRECTORY
# SBCL for its tests, unpacked into DIRECTORY through the machine's ordinary apt configuration; nothing is installed. Exit
# status 3: it is out of reach, as DIRECTORY/missing says. 1: it is not the package that is pinned here.
set -u
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1" || exit 1
. "$here/fetch.sh"

case $(uname -m) in
  x86_64) debian_package sbcl sbcl 2:2.2.9-1 60a5f82ccad1cdb08bc93a104132b99397bb6672b5a0ce0d50b01d47bd0b4765 './usr/*' ;;
  *) missing sbcl "its frames are read on x86-64 alone" ;;
esac
end_of_fetching
