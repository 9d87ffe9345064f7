// Arguments that are structures, unions, enumerations and bit fields. test_arguments_beside_gdb.py compares them.
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
enum small { ZERO, ONE, MINUS = -1 };
enum wide { LOW = 1, HIGH = 0x100000000 };
enum flags { F1 = 1, F2 = 2, F4 = 4 };
struct fields {
  unsigned a : 1, b : 7;
  int c : 9;
  bool d : 1;
  enum small e : 3;
  long f : 40;
  unsigned long g : 63;
};
struct __attribute__((packed)) packed {
  char c;
  int i;
  short s;
};
union u {
  int i;
  float f;
  struct {
    short low, high;
  } halves;
};
struct nested {
  int before;
  struct {
    int x, y;
  } named;
  union {
    int as_int;
    unsigned char as_bytes[4];
  };
  struct packed inner[2];
  int table[2][3];
  char text[6];
  struct nested* next;
};
struct empty {};
struct one {
  char c;
};
volatile int sink;

NOINLINE static void stop(void) {
  printf("ready\n");
  fflush(stdout);
  for (;;) pause();
}

NOINLINE int enums(enum small a, enum wide b, enum flags c, enum flags d, enum small e) {
  stop();
  return a + (int)b + c + d + e + sink;
}

NOINLINE int structures(struct fields f, struct packed p, union u u, struct one o, struct empty none, int behind) {
  int r = enums(MINUS, HIGH, F2, F1 | F4, (enum small)7);
  return r + f.a + f.c + p.i + u.i + o.c + behind + (int)sizeof none + sink;
}

NOINLINE int nests(struct nested n, struct nested* p, enum small (*call)(int), const volatile int* const q) {
  struct fields f = {1, 100, -200, true, MINUS, -5000000000, 0x7000000000000001};
  union u u = {.halves = {-3, 4}};
  int r = structures(f, (struct packed){'p', -70000, 300}, u, (struct one){'o'}, (struct empty){}, 42);
  return r + n.before + p->before + (call != 0) + *q + sink;
}

int main(void) {
  struct nested n = {1, {2, 3}, {0x01020304}, {{'a', 4, 5}, {'b', 6, 7}}, {{1, 2, 3}, {4, 5, 6}}, "text", 0};
  struct nested m = n;
  m.next = &n;
  return nests(m, &n, (enum small(*)(int))0, &sink);
}
