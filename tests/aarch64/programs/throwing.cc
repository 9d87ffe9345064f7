// C++ exceptions through frames with destructors, rethrown, and caught by class.
#include <stdexcept>
#include <string>

static volatile unsigned sink;

struct Guard {
  explicit Guard(unsigned n) : number(n) {}
  ~Guard() { sink = sink + number; }
  unsigned number;
};

__attribute__((noinline)) static unsigned deep(unsigned depth) {
  Guard guard(depth);
  if (depth == 0) throw std::runtime_error("bottom");
  return deep(depth - 1) + guard.number;
}

__attribute__((noinline)) static unsigned middle(unsigned depth) {
  try {
    return deep(depth);
  } catch (const std::logic_error&) {
    return 1;
  } catch (const std::runtime_error&) {
    if (depth % 2 != 0) throw;
    return 2;
  }
}

int main() {
  unsigned total = 0;
  for (unsigned i = 0; i < 2; ++i) {
    try {
      total += middle(i + 1);
    } catch (const std::exception& problem) {
      total += static_cast<unsigned>(std::string(problem.what()).size());
    }
  }
  sink = total;
  return 0;
}
