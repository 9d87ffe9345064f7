#!/usr/bin/env bash
# run_test.sh ARCHITECTURE NAME TEST [FILE...]: runs the gtest program TEST in a virtual machine, with FILEs beside it. Its results
# go where GTEST_OUTPUT=xml:FOLDER/ says, as those of every other test, named vm-ARCHITECTURE-NAME.xml.
# The program finds WINDLASS_EMULATED=1 in its environment: clocks and processors are slow there.
# WINDLASS_VM_SECONDS: how long the machine may run. An emulated x86-64 stands still now and then where its host is busy: 600
# seconds, of which a test needs 30 to 200. AArch64: 2400.
# Exit status 77, SKIPPED: there can be no machine; see boot.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
architecture=$1 name=$2 program=$3
shift 3

seconds=2400
[ "$architecture" != amd64 ] || seconds=600
files=()
for file in "$@"; do files+=(-f "$file"); done
settings="WINDLASS_EMULATED=1 "
for variable in WINDLASS_KERNELS_SECONDS WINDLASS_KERNELS_HZ; do
  [ -z "${!variable:-}" ] || settings+="$variable=${!variable} "
done
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
status=0
"$here/boot.sh" -a "$architecture" -t "${WINDLASS_VM_SECONDS:-$seconds}" -o "$results" -f "$program" ${files[@]+"${files[@]}"} -- \
  "${settings}GTEST_OUTPUT=xml:/out/results.xml $program --gtest_color=no" || status=$?
target=${GTEST_OUTPUT:-}
if [ -f "$results/results.xml" ] && [ "${target#xml:}" != "$target" ]; then
  mkdir -p "${target#xml:}"
  mv "$results/results.xml" "${target#xml:}/vm-$architecture-$name.xml"
fi
exit "$status"
