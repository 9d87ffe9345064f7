// Arguments of C++: this, references, classes, templates, a lambda. test_walk_arguments.py knows the values.
#include <unistd.h>

#include <cstdio>
#include <string>

volatile int sink;

namespace ns {
enum class Level : unsigned char { kLow, kHigh = 200 };
struct Empty {};
struct Base {
  int id;
  virtual ~Base() {}
};
struct Derived : Empty, Base {
  double weight = 0.5;
  int method(int a, const std::string& s, Level l) const;
};
template <typename T>
struct Box {
  T value;
};
}  // namespace ns

#define NOINLINE __attribute__((noinline))

NOINLINE static void stop() {
  std::printf("ready\n");
  std::fflush(stdout);
  for (;;) pause();
}

NOINLINE int by_reference(int& a, const double& d, ns::Box<long> b, ns::Box<ns::Box<char>>&& rr, const char (&arr)[4],
                          const ns::Derived& object) {
  stop();
  return a + int(d) + int(b.value) + rr.value.value + arr[0] + object.id + sink;
}

NOINLINE int ns::Derived::method(int a, const std::string& s, Level l) const {
  int q = 3;
  double d = 4.25;
  std::printf("pointer this %p\n", (const void*)this);
  int r = by_reference(q, d, {7}, {{'z'}}, "abc", *this);
  return r + a + int(s.size()) + int(l) + id + sink;
}

int main() {
  ns::Derived d;
  d.id = 9;
  std::string s = "short";
  auto f = [&](int k) { return d.method(k, s, ns::Level::kHigh) + sink; };
  return f(5) + sink;
}
