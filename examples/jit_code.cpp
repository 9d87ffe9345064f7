// A runtime that makes code and says how to unwind it: the rows of a function are added before it runs, and every walk
// of the process goes through it, backtrace() too. Then other code comes to the same place.
#include <sys/mman.h>

#include <windlass/backtrace.h>
#include <windlass/jit/code_range.h>
#include <cstdio>
#include <cstring>

using namespace windlass;

static std::size_t depth;
static WalkEnd end;
static FrameOrigin origin;

[[gnu::noinline]] static void called_from_generated_code() {
  std::uint64_t pcs[256];
  depth = backtrace(pcs, 256);
  StackWalker walker(own_process(), capture_registers());
  walker.step();  // to the generated function
  walker.step();  // to its caller
  origin = walker.frame().origin;
  while (walker.step()) continue;
  end = walker.end_reason();
}

// void generated(void (*f)()): keeps `size` bytes of stack, less than 128, and calls f.
struct Generated {
  CodeRange range;
  std::byte* code;
};

static Generated generate(std::byte* at, unsigned char size) {
  const auto begin = reinterpret_cast<std::uint64_t>(at);
  const auto row = [&](unsigned from, unsigned to, CfaRule cfa, RegisterRule return_address) {
    FrameRow row;
    row.begin = begin + from;
    row.end = begin + to;
    row.cfa = cfa;
    row.return_address = return_address;
    return row;
  };
#if defined(__x86_64__)
  const unsigned char code[] = {
      0x48, 0x83, 0xec, size,  // sub rsp, size
      0xff, 0xd7,              // call rdi
      0x48, 0x83, 0xc4, size,  // add rsp, size
      0xc3                     // ret
  };
  constexpr RegisterNumber kRsp = 7;
  const CfaRule outside = CfaRule::at(kRsp, 8);
  const CfaRule inside = CfaRule::at(kRsp, 8 + size);
  std::vector<FrameRow> rows = {row(0, 4, outside, RegisterRule::at_cfa(-8)),
                                row(4, 10, inside, RegisterRule::at_cfa(-8)),
                                row(10, 11, outside, RegisterRule::at_cfa(-8))};
#else
  const std::uint32_t code[] = {
      0xd10003ff | std::uint32_t{size} << 10,  // sub sp, sp, #size
      0xf90003fe,                              // str x30, [sp]
      0xd63f0000,                              // blr x0
      0xf94003fe,                              // ldr x30, [sp]
      0x910003ff | std::uint32_t{size} << 10,  // add sp, sp, #size
      0xd65f03c0                               // ret
  };
  constexpr RegisterNumber kX30 = 30;
  constexpr RegisterNumber kSp = 31;
  const CfaRule outside = CfaRule::at(kSp, 0);
  const CfaRule inside = CfaRule::at(kSp, size);
  std::vector<FrameRow> rows = {
      row(0, 4, outside, RegisterRule::in_register(kX30)), row(4, 8, inside, RegisterRule::in_register(kX30)),
      row(8, 16, inside, RegisterRule::at_cfa(-size)), row(16, 20, inside, RegisterRule::in_register(kX30)),
      row(20, 24, outside, RegisterRule::in_register(kX30))};
#endif
  std::memcpy(at, code, sizeof code);
  __builtin___clear_cache(reinterpret_cast<char*>(at), reinterpret_cast<char*>(at) + sizeof code);
  return {{.begin = begin, .end = begin + sizeof code, .name = "[my runtime]", .rows = std::move(rows)}, at};
}

int main() {
  void* room = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return 1;
    // What keeps the stack aligned.
#if defined(__x86_64__)
  const unsigned char kSizes[] = {8, 24, 104};
#else
  const unsigned char kSizes[] = {16, 32, 112};
#endif
  std::size_t depths[3] = {};
  for (unsigned i = 0; i < 3; ++i) {
    Generated generated = generate(static_cast<std::byte*>(room), kSizes[i]);
    const auto id = add_own_code(std::move(generated.range));
    if (!id) {
      std::printf("%s\n", id.error().text().c_str());
      return 1;
    }
    reinterpret_cast<void (*)(void (*)())>(generated.code)(called_from_generated_code);
    std::printf("%zu frames, the generated one left by: %s, %s\n", depth, origin_name(origin).data(),
                end_name(end).data());
    depths[i] = depth;
    if (!retire_own_code(*id)) return 1;  // before other code is written there
  }
  munmap(room, 4096);
  return depths[0] == depths[1] && depths[1] == depths[2] && end == WalkEnd::kComplete ? 0 : 1;
}
