// Registration of generated code: what a batch costs, what the first look-up after it costs, what a throw costs with so
// many functions registered, and what a function takes of memory; beside the native way, a function at a time.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "windlass/backtrace.h"
#include "windlass/format/dwarf.h"
#include "windlass/jit/registration.h"

extern "C" void __register_frame(void*);    // NOLINT(bugprone-reserved-identifier)
extern "C" void __deregister_frame(void*);  // NOLINT(bugprone-reserved-identifier)

namespace {

using namespace windlass;

constexpr std::size_t kApart = 64;

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}
template <typename Work>
double seconds_of(Work&& work) {
  const double before = cpu_seconds();
  work();
  return cpu_seconds() - before;
}

// void f(void (*call)(void*), void* argument): push rbp; mov rbp, rsp; mov rax, rdi; mov rdi, rsi; call rax; pop rbp;
// ret
constexpr unsigned char kCode[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
using Function = void (*)(void (*)(void*), void*);

struct Heap {
  explicit Heap(std::size_t count) : functions(count), size(count * kApart) {
    code = static_cast<unsigned char*>(
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (code == MAP_FAILED) std::abort();
    prologue.code_size = sizeof kCode;
    prologue.ops = {{1, prologue::push(6)}, {4, prologue::SetFramePointer{6}}};
    prologue.epilogues = {
        {.begin = 12, .end = 14, .undone = {{13, prologue.ops[1].action}, {13, prologue.ops[0].action}}}};
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(code + i * kApart, kCode, sizeof kCode);
      functions[i] = {.address = reinterpret_cast<std::uint64_t>(code + i * kApart),
                      .size = sizeof kCode,
                      .name = "generated",
                      .prologue = &prologue};
    }
  }
  ~Heap() { ::munmap(code, size); }
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  Prologue prologue;
  std::vector<GeneratedFunction> functions;
  std::size_t size;
  unsigned char* code = nullptr;
};

// Through ten of them, and out again by an exception.
struct Chain {
  const Heap* heap;
  unsigned left;
};
void next(void* argument) {
  const Chain& chain = *static_cast<Chain*>(argument);
  if (chain.left == 0) throw 1;
  Chain further{chain.heap, chain.left - 1};
  const std::size_t place = chain.left * (chain.heap->functions.size() / 11);
  reinterpret_cast<Function>(chain.heap->code + place * kApart)(next, &further);
}
double throw_microseconds(const Heap& heap) {
  constexpr unsigned kThrows = 200;
  return seconds_of([&] {
           for (unsigned i = 0; i < kThrows; ++i) {
             try {
               Chain chain{&heap, 10};
               next(&chain);
             } catch (int) {}
           }
         }) /
         kThrows * 1e6;
}
void first_find() {
  try {
    throw 1;
  } catch (int) {}
}

std::size_t allocated() { return ::mallinfo2().uordblks + ::mallinfo2().hblkhd; }

void ours(Registry registry, const char* name, const Heap& heap) {
  auto registrar = open_registrar(registry, {.folder = "/tmp"});
  if (!registrar) return;
  const std::size_t before = allocated();
  RegistrationId id{};
  const double add = seconds_of([&] { id = (*registrar)->add(heap.functions).value(); });
  const std::size_t bytes = allocated() - before;
  std::string unwinding = fmt::format("{:>12} {:>14}", "", "");
  if (registry == Registry::kFrameInfo) {
    const double find = seconds_of(first_find);
    unwinding = fmt::format("{:>9.3f} ms {:>11.1f} us", find * 1e3, throw_microseconds(heap));
  }
  const double remove = seconds_of([&] { (void)(*registrar)->remove(id); });
  fmt::print("{:<24} {:>7} {:>10.3f} ms {:>10.3f} ms {} {:>8.0f}\n", name, heap.functions.size(), add * 1e3,
             remove * 1e3, unwinding, static_cast<double>(bytes) / static_cast<double>(heap.functions.size()));
}

void native(const Heap& heap) {
  std::vector<std::vector<std::byte>> sections;
  const std::size_t before = allocated();
  const double add = seconds_of([&] {
    for (const GeneratedFunction& function : heap.functions) {
      dwarf::Writer writer({.pointers = dwarf::Pointers::kAbsolute});
      if (!writer.add(*function.prologue, {.address = function.address})) std::abort();
      sections.push_back(std::move(writer).take().bytes);
      __register_frame(sections.back().data());
    }
  });
  const std::size_t bytes = allocated() - before;
  const double find = seconds_of(first_find);
  const double thrown = throw_microseconds(heap);
  const double remove = seconds_of([&] {
    for (auto& section : sections) __deregister_frame(section.data());
  });
  fmt::print("{:<24} {:>7} {:>10.3f} ms {:>10.3f} ms {:>9.3f} ms {:>11.1f} us {:>8.0f}\n", "__register_frame each",
             heap.functions.size(), add * 1e3, remove * 1e3, find * 1e3, thrown,
             static_cast<double>(bytes) / static_cast<double>(heap.functions.size()));
}

}  // namespace

int main(int argc, char** argv) {
  const bool long_one = argc > 1 && std::strcmp(argv[1], "--long") == 0;  // ten thousand, natively, take a minute
  fmt::print("{:<24} {:>7} {:>13} {:>13} {:>12} {:>14} {:>8}\n", "", "number", "registered", "removed", "first find",
             "a throw by 10", "bytes");
  for (const std::size_t count : {std::size_t{11}, std::size_t{1000}, std::size_t{10000}, std::size_t{100000}}) {
    const Heap heap(count);
    ours(Registry::kFrameInfo, "kFrameInfo", heap);
    if (count <= 1000 || (long_one && count <= 10000)) native(heap);
    ours(Registry::kWindlass, "kWindlass", heap);
    ours(Registry::kGdb, "kGdb", heap);
    ours(Registry::kPerfMap, "kPerfMap", heap);
    ours(Registry::kJitdump, "kJitdump", heap);
  }
  return 0;
}
