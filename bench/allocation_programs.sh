#!/bin/bash
# What recording allocations costs usual programs: the CPU seconds of the program (user and system), without what the
# recorder does in processes of its own. Runs take turns, and each row has the least of ROUNDS runs. Each program is one
# process, which says itself what it has used: heaptrack does not record the processes that a program starts.
# Prints a Markdown table: seconds without a recorder, and multiples of these. A column is - where its program is missing
# or fails: heaptrack, libjemalloc2 are Debian's packages. jemalloc's profiler is beside jemalloc without it.
#
# bench/allocation_programs.sh [ROUNDS [REGEX_OF_NAMES]]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rounds=${1:-5} only=${2:-.}
windlass=${WINDLASS:-$PWD/build/release/src/cli/windlass}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
g++ -std=c++20 -O2 -g1 bench/workloads/allocating.cpp -o "$work/allocating" -pthread
g++ -std=c++20 -E bench/workloads/allocating.cpp -o "$work/work.ii"
head -c 2000000 "$windlass" >"$work/data"
# Preloaded, too: appends the process's name and CPU seconds to $CPU_FILE when it ends.
cat >"$work/cpu.c" <<'END'
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
__attribute__((destructor)) static void tell(void) {
  struct rusage used;
  const char* path = getenv("CPU_FILE");
  FILE* file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  getrusage(RUSAGE_SELF, &used);
  fprintf(file, "%s %.6f\n", program_invocation_short_name, used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec));
  fclose(file);
}
END
gcc -O2 -shared -fPIC "$work/cpu.c" -o "$work/cpu.so"
cat >"$work/json.py" <<'END'
import json
rows = [{"id": i, "name": f"row {i}", "values": [i, i * 2, str(i)]} for i in range(4000)]
for _ in range(12): rows = json.loads(json.dumps(rows))
END
cat >"$work/json.js" <<'END'
let rows = Array.from({length: 4000}, (_, i) => ({id: i, name: `row ${i}`, values: [i, i * 2, String(i)]}));
for (let i = 0; i < 40; ++i) rows = JSON.parse(JSON.stringify(rows));
require("zlib").gzipSync(JSON.stringify(rows), {level: 9});
END
cat >"$work/words.pl" <<'END'
my %words; for my $round (1 .. 6) { for my $i (1 .. 60000) { push @{$words{"w" . $i % 9973}}, "$round:$i" } %words = () if $round % 2 }
END
cat >"$work/rows.sql" <<'END'
create table t(id integer primary key, name text, value real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000) insert into t select i, 'row ' || i, i * 0.5 from n;
select count(*), sum(length(name)) from (select name, value from t order by value % 97, name);
END
python=$(python3 -c "import sys; print(sys.executable)")  # not a script that looks for it
programs=(
  "g++'s compiler, a file of C++|$(g++ -print-prog-name=cc1plus) -quiet -fpreprocessed -fsyntax-only -std=c++20 $work/work.ii"
  "python3, JSON|$python $work/json.py"
  "node, JSON and zlib|node $work/json.js"
  "perl, hashes of lists|perl $work/words.pl"
  "xz -3, 2 MB|xz -3 -k -c $work/data"
  "git log -p, 200 commits|git --no-pager log -p -200"
  "sqlite3, 60,000 rows|sqlite3 :memory: -init $work/rows.sql .exit"
  "2 threads that only allocate|$work/allocating 1500 2"
)
record=("$windlass" record -F 1 --no-symbols -o "$work/p.pb.gz")
preloads() { ! LD_PRELOAD=$1 true 2>&1 | grep -q 'cannot be preloaded'; }
columns=(none "windlass --alloc" "windlass --alloc=1")
if command -v heaptrack >/dev/null; then columns+=(heaptrack); fi
if preloads libjemalloc.so.2; then columns+=(jemalloc "jemalloc, lg_prof_sample:19"); fi

# below COLUMN COMMAND...: runs the command below that recorder
below() {
  local column=$1
  shift
  case $column in
    none) "$@" ;;
    "windlass --alloc") "${record[@]}" --alloc -- "$@" ;;
    "windlass --alloc=1") "${record[@]}" --alloc=1 -- "$@" ;;
    heaptrack) heaptrack --raw -o "$work/heaptrack" "$@" ;;
    jemalloc) env LD_PRELOAD="libjemalloc.so.2:$LD_PRELOAD" "$@" ;;
    *) env LD_PRELOAD="libjemalloc.so.2:$LD_PRELOAD" MALLOC_CONF=prof:true,${column#*, } "$@" ;;
  esac
}
# Prints the CPU seconds of COMMAND, whose name no recorder's process has.
seconds() { # COLUMN COMMAND
  rm -f "$work/time"
  # shellcheck disable=SC2086
  (export CPU_FILE=$work/time LD_PRELOAD=$work/cpu.so && below "$1" $2 >/dev/null 2>&1 </dev/null)
  local file=${2%% *}
  [ ! -s "$work/time" ] || awk -v name="${file##*/}" '$1 == name { print $2 }' "$work/time" | head -1
}

{ printf '| program'; printf ' | %s' "${columns[@]}"; echo ' |'; printf '|---'; printf '|---%.0s' "${columns[@]}"; echo '|'; } | sed 's/| none |/| CPU s |/'
for program in "${programs[@]}"; do
  IFS='|' read -r title command <<<"$program"
  [[ $title =~ $only ]] || continue
  declare -A least=()
  for ((round = 0; round < rounds; ++round)); do
    for column in "${columns[@]}"; do
      value=$(seconds "$column" "$command")
      [ -n "$value" ] || continue
      if [ -z "${least[$column]:-}" ] || [ "$(echo "$value < ${least[$column]}" | bc)" = 1 ]; then least[$column]=$value; fi
    done
  done
  printf '| %s | %.3f' "$title" "${least[none]}"
  for column in "${columns[@]:1}"; do
    base=none
    case $column in jemalloc,*) base=jemalloc ;; esac
    if [ -z "${least[$column]:-}" ]; then printf ' | -'; else printf ' | %.3f' "$(echo "scale=4; ${least[$column]} / ${least[$base]}" | bc)"; fi
  done
  echo ' |'
done
