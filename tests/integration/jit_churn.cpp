// A code heap in which functions come, run and go. Arguments: the seconds of CPU time to run, and the functions a
// second. Three functions at a time are on the stack, below one of 64 functions whose number is also in their names.
// For example, "f123_2_17" is number 2 of generation 123, below leaf<17>. So a stack shows by itself whether its names
// belong together.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/jit_stub.h"
#include "windlass/jit/code_manager.h"

namespace {

using namespace windlass;

constexpr unsigned kLeaves = 64, kSlots = 96, kStubs = 3;

volatile unsigned long sum = 0;

template <unsigned number>
[[gnu::noinline]] void leaf(void*) {
  for (unsigned i = 0; i < 20'000; ++i) sum = sum + i + number;
}
template <unsigned... numbers>
constexpr std::array<void (*)(void*), sizeof...(numbers)> leaves_of(std::integer_sequence<unsigned, numbers...>) {
  return {leaf<numbers>...};
}
constexpr auto kLeaf = leaves_of(std::make_integer_sequence<unsigned, kLeaves>());

// One stub calls the next, the last one the leaf.
struct Way {
  const std::vector<test::JitStub>* stubs;
  std::size_t next;
  unsigned leaf;
};
[[gnu::noinline]] void onward(void* argument) {
  Way& way = *static_cast<Way*>(argument);
  const std::vector<test::JitStub>& stubs = *way.stubs;
  if (way.next == stubs.size()) {
    kLeaf[way.leaf](nullptr);
  } else {
    const test::JitStub& stub = stubs[way.next++];
    stub.call(onward, stubs[0].return_address(), &way);
    --way.next;
  }
  __asm__ volatile("");  // no tail call
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

[[gnu::noinline]] int churn(CodeManager& manager, std::byte* room, double seconds, double rate) {
  std::minstd_rand random(7);
  std::size_t functions = 0;
  for (unsigned generation = 0; cpu_seconds() < seconds; ++generation) {
    const unsigned number = random() % kLeaves;
    std::vector<test::JitStub> stubs;
    std::vector<std::string> names;
    std::vector<std::vector<FrameRow>> rows;
    const unsigned first = random() % kSlots;
    for (unsigned i = 0; i < kStubs; ++i) {
      const unsigned words = test::JitStub::words(1 + random() % (test::JitStub::kMaxWords - 1));
      stubs.emplace_back(room + (first + i * 31) % kSlots * test::JitStub::kRoom, words);
      names.push_back("f" + std::to_string(generation) + "_" + std::to_string(i) + "_" + std::to_string(number));
      rows.push_back(stubs[i].rows_inside());
    }
    std::vector<GeneratedFunction> added;
    std::vector<std::uint64_t> begins;
    for (unsigned i = 0; i < kStubs; ++i) {
      added.push_back({stubs[i].begin(), stubs[i].end() - stubs[i].begin(), names[i], generation, rows[i]});
      begins.push_back(stubs[i].begin());
    }
    if (!manager.add(added)) return 4;
    functions += kStubs;
    Way way{&stubs, 0, number};
    do onward(&way);
    while (static_cast<double>(functions) > cpu_seconds() * rate && cpu_seconds() < seconds);
    if (!manager.update(begins, {})) return 5;
  }
  std::printf("%zu functions\n", functions);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::byte* room = test::JitStub::make_room(kSlots * test::JitStub::kRoom);
  const auto begin = reinterpret_cast<std::uint64_t>(room);
  auto manager = CodeManager::create(begin, begin + kSlots * test::JitStub::kRoom);
  if (room == nullptr || !manager) return 3;
  return churn(*manager, room, std::atof(argv[1]), std::atof(argv[2]));
}
