// A Windows program with a deep stack, which is busy for a second or two. Its names are in its PDB file alone.
namespace work {

int volatile sink;

struct Node {
  int value;
  __attribute__((always_inline)) int weigh(int depth) const {
    for (int i = 0; i < 2000; ++i) sink = sink + value * depth;
    return sink;
  }
};

static __attribute__((noinline)) int leaf(const Node& node, int depth) { return node.weigh(depth) + 1; }

static __attribute__((noinline)) int descend(const Node& node, int depth) {
  if (depth == 0) return leaf(node, depth);
  const int below = descend(node, depth - 1);
  return below + sink;
}

static __attribute__((noinline)) int turn(int i) {
  const Node node{i};
  return descend(node, 20) + 1;
}

}  // namespace work

extern "C" int start() {
  int sum = 0;
  for (int i = 0; i < 400'000; ++i) sum += work::turn(i);
  return work::sink == sum ? 1 : 0;
}
