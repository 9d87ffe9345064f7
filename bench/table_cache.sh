#!/usr/bin/env bash
# The start of `record -a` without tables of other recordings, with an empty folder of these, and with a full one. Prints a
# Markdown table.
# usage: bench/table_cache.sh [FILES] [ROUNDS]        needs root and a release build
#
# A program maps the code of FILES programs and libraries of this machine, as their processes would. Each round records it
# in all three ways, by turns. The figures are the least of all rounds.
#   WINDLASS    the command (build/release/src/cli/windlass)
set -eu
files=${1:-1000}
rounds=${2:-3}
root=$(cd "$(dirname "$0")/.." && pwd)
windlass=${WINDLASS:-$root/build/release/src/cli/windlass}
work=$(mktemp -d)
mapper=
trap '[ -n "$mapper" ] && kill "$mapper"; rm -rf "$work"' EXIT
cat >"$work/map.c" <<'END'
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
/* Maps the first executable segment of each file that standard input names. */
int main(void) {
  char path[4096];
  int mapped = 0;
  while (fgets(path, sizeof path, stdin)) {
    Elf64_Ehdr head;
    path[strcspn(path, "\n")] = 0;
    int file = open(path, O_RDONLY);
    if (file < 0) continue;
    if (pread(file, &head, sizeof head, 0) == sizeof head && memcmp(head.e_ident, "\177ELF\2", 5) == 0)
      for (int i = 0; i < head.e_phnum; ++i) {
        Elf64_Phdr part;
        if (pread(file, &part, sizeof part, head.e_phoff + i * sizeof part) != sizeof part) break;
        if (part.p_type != PT_LOAD || !(part.p_flags & PF_X)) continue;
        unsigned long before = part.p_offset & 4095;
        mapped += mmap(0, part.p_filesz + before, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, part.p_offset - before) != MAP_FAILED;
        break;
      }
    close(file);
  }
  printf("%d\n", mapped);
  fflush(stdout);
  pause();
}
END
cc -O2 "$work/map.c" -o "$work/map"
{ find -L /usr/bin /usr/sbin -type f -perm -100 2>/dev/null; find /usr/lib -type f -name '*.so*' 2>/dev/null; } | shuf --random-source=<(yes) -n "$files" >"$work/files"
"$work/map" <"$work/files" >"$work/mapped" &
mapper=$!
until [ -s "$work/mapped" ]; do sleep 0.2; done

# CPU seconds of tables and of the recorder, seconds from its begin to the first sample, KiB at most.
one() {
  local begin end
  begin=$(date +%s.%N)
  "$windlass" record -a -v --no-symbols -F 99 --duration 1 --table-cache "$1" -o "$work/p.pb.gz" >"$work/out" 2>&1
  end=$(date +%s.%N)
  awk -v all="$(echo "$end - $begin" | bc)" '
    / tables: / { tables = $(NF - 2) }
    / of them from other/ { taken = $1 }
    / agent: / { cpu = $2 + $5; kib = $8 }
    / samples in / { for (i = 1; i < NF; ++i) if ($i == "in") recorded = $(i + 1) }
    END { print tables, cpu, all - recorded, kib, taken + 0 }' "$work/out"
}
for ((round = 0; round < rounds; ++round)); do
  rm -rf "$work/tables"
  one none >>"$work/none"
  one "$work/tables" >>"$work/cold"
  one "$work/tables" >>"$work/warm"
done
echo "Machine: \`$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs, load $(cut -d' ' -f1 /proc/loadavg), Linux $(uname -r), $(date -u +%F); $(cat "$work/mapped") files mapped, $(du -sk "$work/tables" | cut -f1) KiB in $(ls "$work/tables" | wc -l) files\`"
echo
echo "| tables of other recordings | taken | CPU time of tables, s | of the recorder, s | start and end, s | memory, MiB |"
echo "|---|---|---|---|---|---|"
for way in none cold warm; do
  awk -v way="$way" '
    NR == 1 { for (i = 1; i <= 4; ++i) least[i] = $i }
    { for (i = 1; i <= 4; ++i) if ($i < least[i]) least[i] = $i; taken = $5 }
    END { printf "| %s | %d | %.2f | %.2f | %.2f | %.0f |\n", way, taken, least[1], least[2], least[3], least[4] / 1024 }' "$work/$way"
done
