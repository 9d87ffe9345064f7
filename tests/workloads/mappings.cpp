// Makes known mappings in known functions, and prints what a profile must have of each, in bytes:
//   FUNCTION ALLOCATIONS BYTES IN_USE_BYTES
// Usage: mappings [ROUNDS]
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

namespace {

unsigned long rounds = 20;

void expect(const char* function, unsigned long allocations, unsigned long bytes, unsigned long in_use) {
  std::printf("%s %lu %lu %lu\n", function, rounds * allocations, rounds * bytes, rounds * in_use);
}

constexpr int kUsual = MAP_PRIVATE | MAP_ANONYMOUS;
constexpr int kWritable = PROT_READ | PROT_WRITE;
constexpr unsigned long kPiece = 65536;  // whole pages of any size

char* map(void* at, unsigned long size, int protection, int flags, int file = -1) {
  void* const made = mmap(at, size, protection, flags, file, 0);
  if (made == MAP_FAILED) std::abort();
  return static_cast<char*>(made);
}

}  // namespace

#define KNOWN extern "C" __attribute__((noinline))

KNOWN void known_mmap() {
  for (unsigned long i = 0; i < rounds; ++i) {
    char* const made = map(nullptr, 10 * kPiece, kWritable, kUsual);
    map(nullptr, 5000, kWritable, MAP_SHARED | MAP_ANONYMOUS);
    munmap(made, 10 * kPiece);
  }
  expect("known_mmap", 2, 10 * kPiece + 5000, 5000);
}
// The middle goes, then the end with what is behind.
KNOWN void known_parts() {
  for (unsigned long i = 0; i < rounds; ++i) {
    char* const made = map(nullptr, 8 * kPiece, kWritable, kUsual);
    munmap(made + 2 * kPiece, kPiece);
    munmap(made + 6 * kPiece, 2 * kPiece);
  }
  expect("known_parts", 1, 8 * kPiece, 5 * kPiece);
}
KNOWN void known_over() {
  for (unsigned long i = 0; i < rounds; ++i) {
    char* const made = map(nullptr, 8 * kPiece, kWritable, kUsual);
    map(made + kPiece, 2 * kPiece, kWritable, kUsual | MAP_FIXED);
    map(made + 6 * kPiece, kPiece, PROT_NONE, kUsual | MAP_FIXED);
  }
  expect("known_over", 2, 10 * kPiece, 7 * kPiece);
}
// Space without memory, and files. mremap() fails once, and the mapping stays.
KNOWN void known_none() {
  const int file = open("/proc/self/exe", O_RDONLY);
  for (unsigned long i = 0; i < rounds; ++i) {
    map(nullptr, kPiece, PROT_NONE, kUsual | MAP_NORESERVE);
    void* const read = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    if (mremap(read, 4096, 3 * kPiece, MREMAP_MAYMOVE) == MAP_FAILED) std::abort();
  }
  close(file);
  expect("known_none", 0, 0, 0);
}
KNOWN void known_mremap() {
  for (unsigned long i = 0; i < rounds; ++i) {
    char* const made = map(nullptr, kPiece, kWritable, kUsual);
    void* const behind = mmap(made + kPiece, kPiece, PROT_NONE, kUsual | MAP_FIXED_NOREPLACE, -1, 0);  // if it is free
    if (mremap(made, kPiece, 3 * kPiece, 0) != MAP_FAILED || errno != ENOMEM) std::abort();
    char* const moved = static_cast<char*>(mremap(made, kPiece, 3 * kPiece, MREMAP_MAYMOVE));
    if (moved == MAP_FAILED) std::abort();
    if (mremap(moved, 3 * kPiece, 2 * kPiece, 0) != moved) std::abort();
    if (behind != MAP_FAILED) munmap(behind, kPiece);
  }
  expect("known_mremap", 3, 6 * kPiece, 2 * kPiece);
}
// By the allocator, whichever that is: what it maps counts once.
KNOWN void known_malloc() {
  for (unsigned long i = 0; i < rounds; ++i) {
    void* const block = std::malloc(50 * kPiece);
    asm volatile("" : : "r"(block) : "memory");
    if (i % 2 == 1) std::free(block);
  }
  std::printf("known_malloc %lu %lu %lu\n", rounds, rounds * 50 * kPiece, (rounds + 1) / 2 * 50 * kPiece);
}
// A child ends mappings of its own only.
KNOWN void known_parent() {
  char* const made = map(nullptr, rounds * kPiece, kWritable, kUsual);
  const pid_t child = fork();
  if (child == 0) {
    munmap(made, rounds * kPiece);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  std::printf("known_parent 1 %lu %lu\n", rounds * kPiece, rounds * kPiece);
}

int main(int argc, char** argv) {
  if (argc > 1) rounds = std::strtoul(argv[1], nullptr, 10);
  for (void (*function)() :
       {known_mmap, known_parts, known_over, known_none, known_mremap, known_malloc, known_parent}) {
    function();
    std::fflush(stdout);
  }
  return 0;
}
