// First calls through a lazily bound PLT, so that the dynamic linker's resolver is on the stack, then bound ones.
#define _GNU_SOURCE
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

#include "marker.h"

static int by_text(const void* a, const void* b) { return strcmp(*(char* const*)a, *(char* const*)b); }

static double numbers(volatile double x) {
  return sin(x) + cos(x) + tan(x) + exp(x) + log(x) + pow(x, 1.7) + atan2(x, 2) + sinh(x) + cbrt(x) + fmod(x, .3) +
         hypot(x, 2) + tgamma(x) + lgamma(x) + erf(x);
}

static size_t texts(char* a, char* b, volatile size_t n) {
  memset(a, 'a', n);
  a[n] = 0;
  memcpy(b, a, n + 1);
  memmove(b + 1, b, n);
  size_t sum = strlen(a) + (size_t)memchr(a, 'z', n) + (size_t)memcmp(a, b, n) + (size_t)strchr(a, 'q');
  sum += (size_t)strrchr(a, 'a') + (size_t)strcasecmp(a, b) + (size_t)strstr(a, "ab") + strspn(a, "a");
  return sum + strcspn(a, "z") + (size_t)strpbrk(a, "xyz") + (size_t)stpcpy(b, a) + (size_t)strncpy(b, a, n);
}

int main(int argc, char** argv) {
  static char a[4096], b[4096];
  double x = 0;
  size_t sum = 0;
  judge_from_here();
  for (int round = 0; round < 2; ++round) {
    x += numbers(argc + 0.5);
    for (size_t n = 1; n < 800; n = n * 5 + 1) sum += texts(a, b, n);
    char* words[] = {"one", "two", "three", "four", "five"};
    qsort(words, 5, sizeof *words, by_text);
    sum += (size_t)bsearch(&words[2], words, 5, sizeof *words, by_text);
    snprintf(a, sizeof a, "%d %s %f %zx", round, "text", x, sum);
    sum += (size_t)strtol("123", 0, 10) + (size_t)strtod("1.5e3", 0) + wcslen(L"wide");
    char* copy = realloc(strdup(a), 5000);
    for (char* word = strtok(copy, " "); word; word = strtok(0, " ")) sum += (size_t)toupper(*word);
    free(copy);
  }
  return sum == 1 && argv[0] == 0;
}
