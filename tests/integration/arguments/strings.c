// Arguments that are text, and pointers of all kinds. test_arguments_beside_gdb.py compares them.
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
typedef const char* text;
typedef char name[12];
struct entry {
  text key;
  name value;
  unsigned char digest[4];
  int8_t small[3];
};
volatile int sink;

NOINLINE static void stop(void) {
  printf("ready\n");
  fflush(stdout);
  for (;;) pause();
}

NOINLINE int texts(const char* a, char* b, text c, unsigned char* d, signed char* e, const char* none,
                   const char* empty) {
  stop();
  return a[0] + b[0] + c[0] + d[0] + e[0] + (none != 0) + empty[0] + sink;
}

NOINLINE int pointers(void* v, const void* cv, int* i, char** strings, struct entry* s, int (*f)(const char*, ...),
                      wchar_t* w, uint16_t* u, ptrdiff_t p, size_t z) {
  char local[] = "local \"quoted\" back\\slash";
  int r = texts("plain", local, "text", (unsigned char*)"unsigned", (signed char*)"signed", 0, "");
  return r + (v != 0) + (cv != 0) + *i + strings[0][0] + s->key[0] + (f != 0) + (int)w[0] + u[0] + (int)p + (int)z +
         local[0];
}

NOINLINE int entries(struct entry e, struct entry* p, char last, unsigned char byte) {
  int number = 7;
  char* strings[] = {"first", "second", 0};
  uint16_t u[] = {1, 2};
  int r = pointers(&number, strings, &number, strings, p, printf, L"wide", u, -8, sizeof e);
  return r + e.key[0] + last + byte + number + sink;
}

int main(void) {
  struct entry e = {"key", "value", {1, 2, 'c', 255}, {-1, 'x', 0}};
  return entries(e, &e, '~', '\t');
}
