// aarch64_judge [-n INSTRUCTIONS] [-f EVERY] [-c CPU] [-L SYSROOT] [-s] [-b] PROGRAM ARGUMENTS...
//   -n  instructions to judge (100000)          -f  walk the whole stack every so many (100; 0: never)
//   -k  walk it by the profiler's unwinder every so many (10; 0: never)
//   -c  qemu's CPU (max,sve=off)                -s  from the dynamic linker's first instruction
//   -b  with LD_BIND_NOW                        -l  sites to list (50)
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "aarch64/judge.h"

int main(int argc, char** argv) {
  windlass::aarch64_judge::Options options;
  options.sysroot = WINDLASS_AARCH64_SYSROOT;
  std::size_t sites = 50;
  for (int c; (c = getopt(argc, argv, "+n:f:k:c:L:l:sb")) != -1;) {
    switch (c) {
      case 'n': options.most = std::strtoull(optarg, nullptr, 0); break;
      case 'f': options.whole_stack = std::strtoull(optarg, nullptr, 0); break;
      case 'k': options.kernel_stack = std::strtoull(optarg, nullptr, 0); break;
      case 'l': sites = std::strtoull(optarg, nullptr, 0); break;
      case 'c': options.cpu = optarg; break;
      case 'L': options.sysroot = optarg; break;
      case 's': options.from_start = true; break;
      case 'b': options.bind_now = true; break;
      default: return 2;
    }
  }
  options.command.assign(argv + optind, argv + argc);
  if (options.command.empty()) {
    std::fprintf(stderr, "usage: aarch64_judge [options] PROGRAM ARGUMENTS...\n");
    return 2;
  }
  const auto report = windlass::aarch64_judge::judge(options);
  std::fputs(report.text(sites).c_str(), stdout);
  return report.judged == 0 ? 1 : 0;
}
