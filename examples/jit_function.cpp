// Registers a function made at run time, so that walks and profilers know its frame. x86-64.
#include <sys/mman.h>
#include <windlass/jit/registration.h>
#include <windlass/stack.h>

#include <cstdio>
#include <cstring>

using namespace windlass;

int main() {
  const unsigned char code[] = {0x53, 0xff, 0xd7, 0x5b, 0xc3};  // push rbx; call rdi; pop rbx; ret
  void* at = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memcpy(at, code, sizeof code);
  const auto begin = reinterpret_cast<std::uint64_t>(at);

  Prologue frame{.architecture = Architecture::kX86_64, .code_size = sizeof code, .ops = {{1, prologue::push(3)}}};
  frame.epilogues = {mirrored(frame, 3)};
  const GeneratedFunction function{.address = begin, .size = sizeof code, .name = "generated", .prologue = &frame};
  const auto walks = open_registrar(Registry::kCodeManager, {.heap_begin = begin, .heap_end = begin + 4096});
  const auto id = (*walks)->add({&function, 1});
  if (!id) return std::puts(id.error().text().c_str()), 1;

  reinterpret_cast<void (*)(void (*)())>(at)([] { (void)print_stack(1); });
  return (*walks)->remove(*id) ? 0 : 1;  // before other code is written there
}
