#!/bin/sh
# fetch_php.sh DIRECTORY
# PHP and PyPy for the tests of code that is made at run time, unpacked into DIRECTORY through the machine's ordinary apt configuration; nothing is installed. Exit
# status 3: it is out of reach, as DIRECTORY/missing says. 1: it is not the package that is pinned here.
set -u
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1" || exit 1
. "$here/fetch.sh"

case $(uname -m) in
  x86_64)
    version=8.2.36-1~deb12u1
    debian_package php php8.2-cli $version a9a57edd7ea11c1e702e2b189c3f2427df8e0d5f3c00e380def5283f2c150b7c './usr/bin/*'
    debian_package opcache php8.2-opcache $version \
      ac765af2890806a8047a626994ee6966517b90a4073591bc05adb54ecd4d82f2 './usr/lib/*'
    version=7.3.11+dfsg-2+deb12u3
    debian_package pypy pypy3 $version 21847932176d570d5b012e10fb807cf0f95ff851c525d9397afbda5a72a13650 './usr/*'
    debian_package pypy_library pypy3-lib $version \
      d7db4364c437b54b9e1eba9d024e0c601a681937292882ed75987837da8ac9ff './usr/lib/*'
    # Its modules are looked for below the folder of the program.
    [ ! -d pypy/usr/lib ] || ln -sfn ../../../pypy_library/usr/lib/pypy3.9 pypy/usr/lib/pypy3.9 ;;
  *) missing php "its generated code is followed on x86-64 alone" ;;
esac
end_of_fetching
