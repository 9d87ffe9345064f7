// A Windows program with known functions, inlined calls and lines. It needs no library.
extern "C" int _fltused = 0;

namespace shapes {

int volatile sink;

__attribute__((always_inline)) inline int twice(int value) {
  sink = value;
  return value + sink;
}

struct Square {
  int side;
  __attribute__((always_inline)) int area() const {
    const int doubled = twice(side);
    return doubled * side;
  }
  __attribute__((noinline)) int border() const { return 4 * twice(side) + sink; }
  ~Square();
};

Square::~Square() { sink = side; }

template <typename T>
__attribute__((noinline)) T largest(T a, T b) {
  sink = 1;
  return a > b ? a : b;
}

}  // namespace shapes

#include "part.inc"

static __attribute__((noinline)) int hidden(int value) {
  shapes::sink = value;
  const shapes::Square square{value};
  return square.area() + square.border();
}

extern "C" __attribute__((noinline, cold)) int plain(int value) {
  for (int i = 0; i < value; ++i) {
    if (shapes::sink == i) return shapes::from_part(i);
    shapes::sink = shapes::twice(i);
  }
  return hidden(value);
}

extern "C" int start() { return plain(shapes::sink) + shapes::largest(shapes::sink, 3); }
