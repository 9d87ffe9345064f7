// What test_annotate annotates: known lines, and a function that is inlined in another.
#include <cstdlib>

static inline __attribute__((always_inline)) long square(long x) {
  return x * x + (x >> 3);  // line 5
}

__attribute__((noinline)) long work(const long* values, long count) {
  long sum = 0;
  for (long i = 0; i < count; ++i) {
    if (values[i] % 7 == 3)
      sum += square(values[i]);  // line 12
    else
      sum ^= values[i] / 3;
  }
  return sum;
}

__attribute__((noinline)) long work(const char* text) { return std::atol(text) + 1; }

int main(int argc, char** argv) {
  const long values[] = {3, 10, 11, 17};
  return static_cast<int>(work(values, argc) + work(argv[0])) & 1;
}
