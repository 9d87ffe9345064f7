// Types of every kind. values.cpp has a variable of each, by whose debug information test_value_text.cpp shows its own.
#pragma once

#include <cstdint>

namespace windlass::test::values {

enum Plain { kNone, kOne, kTwo };
enum Signed : short { kMinus = -3, kPlus = 3 };
enum class Small : unsigned char { kLow, kHigh = 255 };
struct Empty {};
struct Point {
  int x, y;
};
struct Nested {
  Point first;
  const char* text;
  Point second;
};
struct Base {
  int base;
};
struct Derived : Base, Empty {
  static int shared;
  long own;
};
struct Virtual : virtual Base {
  int own;
};
union Either {
  int number;
  unsigned char bytes[4];
};
struct Anonymous {
  int before;
  union {
    int a;
    float b;
  };
};
struct Bits {
  unsigned low : 3;
  int middle : 5;
  unsigned high : 24;
  bool flag : 1;
  long wide : 40;
};
struct Many {
  int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q;
};
struct Sixteen {
  int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p;
};
struct Deep1 {
  int end;
};
struct Deep2 {
  Deep1 in;
};
struct Deep3 {
  Deep2 in;
};
struct Deep4 {
  Deep3 in;
};
struct Deep5 {
  Deep4 in;
};
struct Deep6 {
  Deep5 in;
};
struct Deep7 {
  Deep6 in;
};
struct References {
  int& number;
  const Point&& point;
};
struct Member {
  Empty empty;
  int number;
};
using Text = const char*;
using Number = int;
using Count = const volatile Number;
__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;
using Function = int(long);

}  // namespace windlass::test::values
