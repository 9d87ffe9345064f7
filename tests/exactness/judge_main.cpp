// The judge as a command: any program, any unwinders, as long as one likes.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "exactness/judge.h"

namespace {

using namespace windlass::exactness;

int usage() {
  std::fputs(
      "usage: judge [-n COUNT] [-s SKIP] [-e EVERY] [-f EVERY] [-o FILE] [-S] [-b SYSCALL [-r] | -c COUNT] [-p "
      "PEER.so]... -- "
      "PROGRAM "
      "ARGS\n"
      "  -n  judge so many instructions (default 200000)      -s  let so many go by first\n"
      "  -e  judge only every so manieth                      -f  unwind the whole stack at every so manieth judged\n"
      "  -S  begin at the program's entry point               -b  begin at this system call (110: getppid)\n"
      "  -r  let it run freely until then: fast, but the frames it has by then are not judged\n"
      "  -c  let it run freely through so many system calls first; as -r\n"
      "  -o  where failing addresses are listed (default: standard error)\n"
      "  -p  an unwinder to judge beside Windlass: a shared object that exports uj_unwind (peer.h)\n",
      stderr);
  return 2;
}

bool add_peer(std::deque<JudgedPeer>& peers, const std::string& path) {
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* function = library != nullptr ? ::dlsym(library, "uj_unwind") : nullptr;
  if (function == nullptr) {
    std::fprintf(stderr, "judge: %s\n", ::dlerror());
    return false;
  }
  peers.push_back({reinterpret_cast<uj_unwind_function>(function), Tally(path.substr(path.rfind('/') + 1))});
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  JudgeOptions options;
  std::deque<JudgedPeer> peers;
  peers.push_back({uj_unwind, Tally("windlass")});
  std::FILE* sites = stderr;
  for (int option = 0; (option = ::getopt(argc, argv, "+n:s:e:f:o:c:Srb:p:")) != -1;) {
    const auto number = [] { return std::strtoull(optarg, nullptr, 0); };
    switch (option) {
      case 'n': options.instructions = number(); break;
      case 's': options.skip = number(); break;
      case 'e': options.every = number() == 0 ? 1 : number(); break;
      case 'f': options.whole_stacks = number(); break;
      case 'o': sites = std::fopen(optarg, "w"); break;
      case 'r': options.run_to_system_call = true; break;
      case 'c': options.run_system_calls = number(); break;
      case 'S': options.begin_at_entry = true; break;
      case 'b': options.begin_at_system_call = static_cast<long>(number()); break;
      case 'p':
        if (!add_peer(peers, optarg)) return 2;
        break;
      default: return usage();
    }
  }
  if (optind >= argc || sites == nullptr) return usage();
  const JudgeReport report = judge(options, argv + optind, peers, sites);
  if (!report.error.empty()) {
    std::fprintf(stderr, "judge: %s\n", report.error.c_str());
    return 2;
  }
  const auto n = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
  std::printf("%s: steps %llu judged %llu limbo %llu rewritten %llu unknown stack %llu signals %llu deepest %llu\n",
              argv[optind], n(report.steps), n(report.judged), n(report.limbo), n(report.rewritten), n(report.unknown),
              n(report.signals), n(report.deepest));
  for (const JudgedPeer& peer : peers) std::printf("  %s\n", peer.tally.summary().c_str());
  return peers[0].tally.count(Verdict::kWrong) == 0 ? 0 : 1;
}
