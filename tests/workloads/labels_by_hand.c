/* Threads with labels, written as OTEPs 4947 and 4719 say and not by Windlass.
 *   labels_by_hand LIBRARY MS
 * LIBRARY has the variable (labels_variable.c) and is opened by dlopen(); "-": the program itself has it. Each of two
 * threads spins MS of CPU time with route=/a, twice as long with route=/b and user=THREAD, and as long as the first
 * without labels. Then it prints its CPU times: VALUE NS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifdef OWN_VARIABLE
void** context_variable(void);
#endif

struct record {
  uint8_t trace_id[16], span_id[8], valid, flags;
  uint16_t size;
  uint8_t attributes[64];
};

static void** (*variable)(void);
static int64_t ms;

static int64_t cpu_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

__attribute__((noinline)) void spin(int64_t ns) {
  for (const int64_t until = cpu_clock() + ns; cpu_clock() < until;) continue;
  __asm__ volatile("" ::: "memory");
}

static int64_t timed(int64_t ns) {
  const int64_t begin = cpu_clock();
  spin(ns);
  return cpu_clock() - begin;
}

static void add(struct record* to, uint8_t key, const char* value) {
  uint8_t* at = to->attributes + to->size;
  at[0] = key;
  at[1] = (uint8_t)strlen(value);
  memcpy(at + 2, value, at[1]);
  to->size = (uint16_t)(to->size + 2 + at[1]);
}

static void* run(void* name) {
  struct record a = {.trace_id = {0xab}, .span_id = {0xcd}, .valid = 1}, b = a;
  add(&a, 0, "/old");
  add(&a, 0, "/a"); /* the last one counts */
  add(&b, 0, "/b");
  add(&b, 1, name);
  add(&b, 7, "without a name");
  *(void* volatile*)variable() = &a;
  const int64_t in_a = timed(ms * 1000000);
  *(void* volatile*)variable() = &b;
  const int64_t in_b = timed(2 * ms * 1000000);
  b.valid = 0;
  const int64_t in_none = timed(ms * 1000000);
  *(void* volatile*)variable() = NULL;
  printf("/a %" PRId64 "\n/b %" PRId64 "\n%s %" PRId64 "\n- %" PRId64 "\n", in_a, in_b, (const char*)name, in_b,
         in_none);
  return NULL;
}

/* A ProcessContext with two attributes. */
static const char kPayload[] =
    "\x12\x2e"
    "\x0a\x1athreadlocal.schema_version"
    "\x12\x10\x0a\x0etlsdesc_v1_dev"
    "\x12\x34"
    "\x0a\x1dthreadlocal.attribute_key_map"
    "\x12\x13\x2a\x11"
    "\x0a\x07\x0a\x05route"
    "\x0a\x06\x0a\x04user";

static void share_keys(void) {
  struct {
    char signature[8];
    uint32_t version, size;
    uint64_t published;
    const void* payload;
  } header = {"OTEL_CT", 2, sizeof kPayload - 1, 1, kPayload};
  header.signature[7] = 'X';
  const int file = memfd_create("OTEL_CTX", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, 4096) != 0) abort();
  void* at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  if (at == MAP_FAILED) abort();
  memcpy(at, &header, sizeof header);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  ms = atoi(argv[2]);
#ifdef OWN_VARIABLE
  variable = context_variable;
#else
  void* library = dlopen(argv[1], RTLD_NOW);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
  variable = (void** (*)(void))dlsym(library, "context_variable");
#endif
  share_keys();
  usleep(300000); /* for the profiler to have seen the library */
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, run, i == 0 ? "ann" : "bob");
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  return 0;
}
