// Generated code on the stack. The first argument says how it is published: registered ("gdb", "perfmap", "jitdump"),
// by a code manager ("manager"), or in a jitdump whose code moves when half of the time is over ("moved"). The second
// argument is the folder for files. The third is the number of seconds to compute. Without it the program stops for a
// debugger; with "fork", a child of it does.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "support/jit_stub.h"
#include "windlass/jit/code_manager.h"
#include "windlass/jit/registration.h"

namespace {

using namespace windlass;

bool forks = false;

[[gnu::noinline]] void in_code(void* argument) {
  const double seconds = *static_cast<double*>(argument);
  if (forks && ::fork() != 0) {
    ::wait(nullptr);
    return;
  }
  if (seconds == 0) std::raise(SIGINT);
  volatile unsigned long sum = 0;
  while (static_cast<double>(std::clock()) < seconds * CLOCKS_PER_SEC)
    for (unsigned i = 0; i < 100000; ++i) sum = sum + i;
}

Registry registry_of(const char* name) {
  if (std::strcmp(name, "gdb") == 0) return Registry::kGdb;
  return std::strcmp(name, "perfmap") == 0 ? Registry::kPerfMap : Registry::kJitdump;
}

int run_published(const test::JitChain& chain, double seconds) {
  const auto begin = reinterpret_cast<std::uint64_t>(chain.room());
  auto manager = CodeManager::create(begin, begin + test::JitChain::kRoom);
  if (!manager) return 6;
  for (unsigned i = 0; i < test::JitChain::kStubs; ++i) {
    const test::JitStub& stub = chain.stubs()[i];
    const std::string name = "stub" + std::to_string(i);
    if (!manager->add({{stub.begin(), stub.end() - stub.begin(), name, i, stub.rows_inside()}})) return 7;
  }
  chain.through(test::JitChain::kStubs, in_code, &seconds);
  std::puts("done");
  return 0;
}

std::vector<GeneratedFunction> functions_of(const test::JitChain& chain, const std::vector<std::string>& names,
                                            const GeneratedLine& line) {
  std::vector<GeneratedFunction> functions;
  for (unsigned i = 0; i < names.size(); ++i) {
    const test::JitStub& stub = chain.stubs()[i];
    functions.push_back({.address = stub.begin(),
                         .size = static_cast<std::uint32_t>(stub.end() - stub.begin()),
                         .name = names[i],
                         .rows = stub.rows(),
                         .lines = {&line, 1}});
  }
  return functions;
}

// To another place, where all of it stands once more.
int run_moved(Registrar& registrar, RegistrationId id, const test::JitChain& chain,
              const std::vector<std::string>& names, const GeneratedLine& line, double seconds) {
  double half = seconds / 2;
  chain.through(test::JitChain::kStubs, in_code, &half);
  const test::JitChain other;
  if (other.room() == nullptr) return 8;
  std::vector<MovedFunction> moves;
  for (const GeneratedFunction& now : functions_of(other, names, line))
    moves.push_back({chain.stubs()[moves.size()].begin(), now});
  if (const auto ok = registrar.move(id, moves); !ok) return std::fprintf(stderr, "%s\n", ok.error().text().c_str()), 9;
  other.through(test::JitChain::kStubs, in_code, &seconds);
  std::puts("done");
  return registrar.remove(id) ? 0 : 5;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const test::JitChain chain;
  if (chain.room() != nullptr && std::strcmp(argv[1], "manager") == 0) return run_published(chain, std::atof(argv[3]));
  const auto registrar = open_registrar(registry_of(argv[1]), {.folder = argv[2]});
  if (!registrar || chain.room() == nullptr) return 3;
  std::vector<std::string> names;
  for (unsigned i = 0; i < test::JitChain::kStubs; ++i) names.push_back("stub" + std::to_string(i));
  const GeneratedLine line{.offset = 0, .file = "generated.js", .line = 42};
  const auto id = (*registrar)->add(functions_of(chain, names, line));
  if (!id) return std::fprintf(stderr, "%s\n", id.error().text().c_str()), 4;
  forks = std::strcmp(argv[3], "fork") == 0;
  double seconds = std::atof(argv[3]);
  if (std::strcmp(argv[1], "moved") == 0) return run_moved(**registrar, *id, chain, names, line, seconds);
  chain.through(test::JitChain::kStubs, in_code, &seconds);
  std::puts("done");
  return (*registrar)->remove(*id) ? 0 : 5;
}
