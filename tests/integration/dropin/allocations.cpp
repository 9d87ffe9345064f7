// Allocates from many stacks, for memory profilers; and spins in some, for processor profilers. The same every time.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

volatile double sink;

using Node = std::map<std::string, std::vector<int>>;

[[gnu::noinline]] void fill(Node& node, int depth, int key) {
  if (depth > 0)
    fill(node, depth - 1, key * 31 + 1);
  else
    for (int i = 0; i < 40; ++i) node[std::to_string(key % 100000 * 1000 + i) + " a key that allocates"].push_back(i);
  sink = sink + 1;
}

[[gnu::noinline]] void spin(int depth) {
  if (depth > 0)
    spin(depth - 1);
  else
    for (int i = 0; i < 20000; ++i) sink = sink * 0.999 + 1;
  sink = sink + 1;
}

int compare(const void* a, const void* b) {
  std::free(std::malloc(24));
  return *static_cast<const int*>(a) - *static_cast<const int*>(b);
}

}  // namespace

int main() {
  std::vector<Node> kept(16);
  for (int round = 0; round < 60; ++round) {
    Node node;
    fill(node, round % 30, round);
    fill(kept[static_cast<std::size_t>(round % 16)], round % 7, round % 16);
    int numbers[64];
    for (int i = 0; i < 64; ++i) numbers[i] = i * 37 % 64;
    std::qsort(numbers, 64, sizeof numbers[0], compare);
    for (int i = 0; i < 50; ++i) spin(round % 30);
  }
}
