// Arguments of C++: references, inheritance, members, templates, the library's types. test_arguments_beside_gdb.py
// compares them.
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))
volatile int sink;

namespace shop {
enum class State : std::uint8_t { kOpen, kShut = 250 };
enum class Far : std::int64_t { kFar = -5'000'000'000 };
struct Left {
  int l = 1;
};
struct Right {
  double r = 2.5;
  virtual ~Right() = default;
};
struct Nothing {};
struct Both : Left, Right, Nothing {
  int own = 3;
  static int shared;
  unsigned bit : 3 = 5;
  bool is : 1 = true;
};
int Both::shared = 9;
template <typename T, int N>
struct Box {
  T values[N];
};
class Account {
 public:
  explicit Account(long id) : id_(id) {}
  NOINLINE long pay(float amount, State state, Far far, const Account& to) const;

 private:
  long id_;
  std::pair<int, char> pair_{-4, 'p'};
};
}  // namespace shop

NOINLINE static void stop() {
  std::printf("ready\n");
  std::fflush(stdout);
  for (;;) pause();
}

NOINLINE long library(std::pair<int, double> p, std::string_view v, std::array<int, 3> a, const std::vector<int>& w,
                      std::optional<int> o, std::nullptr_t n) {
  stop();
  return p.first + long(v.size()) + a[1] + w[0] + o.value_or(0) + (n == nullptr) + sink;
}

NOINLINE long references(int& a, const double& b, bool&& c, shop::Left& l, const shop::Both& both,
                         const char (&text)[4], int* const& pointer, long& deep) {
  std::vector<int> w{5, 6};
  long r = library({1, 2.5}, "view", {7, 8, 9}, w, 11, nullptr);
  return r + a + long(b) + c + l.l + both.own + text[0] + *pointer + deep + w[1] + sink;
}

NOINLINE long boxes(shop::Box<char, 3> c, shop::Box<shop::Box<short, 2>, 2> b, shop::Both both, int shop::Left::*member,
                    void (*call)(int)) {
  int a = 1;
  double d = -1.5;
  long deep = 1L << 40;
  int* pointer = &a;
  long r = references(a, d, sink == 0, both, both, "abc", pointer, deep);
  return r + c.values[0] + b.values[1].values[0] + (member != nullptr) + (call != nullptr) + a + long(d) + deep;
}

long shop::Account::pay(float amount, State state, Far far, const Account& to) const {
  long r = boxes({{'x', 'y', 'z'}}, {{{{1, 2}}, {{3, 4}}}}, Both(), &Left::l, nullptr);
  return r + id_ + long(amount) + long(state) + long(far) + to.id_ + pair_.first + sink;
}

template <typename T>
NOINLINE long generic(T a, const T& b, char c) {
  shop::Account one(10), two(20);
  return one.pay(0.25f, shop::State::kShut, shop::Far::kFar, two) + long(a) + long(b) + c;
}

int main() {
  auto call = [&](unsigned short n, bool yes) { return generic<long>(n, -77, yes ? 'y' : 'n') + sink; };
  return int(call(60000, sink == 0));
}
