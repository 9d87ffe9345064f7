// A program that mostly allocates: trees of strings, as a parser of JSON builds and drops them, with stacks of up to 40
// frames, in several threads. Prints its CPU seconds.
//   allocating DOCUMENTS [THREADS]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Random {
  std::uint64_t state;
  std::uint64_t operator()() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
};

struct Node {
  std::string text;
  std::vector<std::unique_ptr<Node>> children;
  std::map<std::string, std::unique_ptr<Node>> members;
};

[[gnu::noinline]] std::string text_of(Random& random) { return std::string(random() % 60, 'x'); }

[[gnu::noinline]] std::unique_ptr<Node> parse(Random& random, unsigned depth) {
  auto node = std::make_unique<Node>();
  node->text = text_of(random);
  if (depth == 0) return node;
  const unsigned children = 1 + random() % 3;
  for (unsigned i = 0; i < children; ++i)
    if (random() % 2 == 0)
      node->children.push_back(parse(random, random() % 4 == 0 ? depth - 1 : depth / 2));
    else
      node->members[text_of(random)] = parse(random, random() % 4 == 0 ? depth - 1 : depth / 2);
  return node;
}

void work(std::uint64_t seed, unsigned documents) {
  Random random{seed * 0x9e3779b97f4a7c15ull | 1};
  std::vector<std::unique_ptr<Node>> kept(64);
  for (unsigned i = 0; i < documents; ++i) kept[random() % kept.size()] = parse(random, 24);
}

}  // namespace

int main(int argc, char** argv) {
  const auto documents = static_cast<unsigned>(argc > 1 ? std::atoi(argv[1]) : 10'000);
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work, i + 1, documents);
  work(1, documents);
  for (std::thread& thread : others) thread.join();
  std::printf("CPU %.4f\n", static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
}
