// Unwind information for code that a JIT has made, for Windows x64: the function's prologue is described once, written
// as UNWIND_INFO for the system, and turned into rows for a walker of one's own. Runs anywhere.
//
// On Windows the bytes and entries go into memory within 4 GiB of the code, and the entries to RtlAddFunctionTable or
// RtlAddGrowableFunctionTable, with the base that the RVAs count from.
#include <cstddef>
#include <cstdio>
#include <variant>
#include <vector>

#include <windlass/format/winx64.h>
#include <windlass/prologue.h>

namespace {

constexpr windlass::RegisterNumber kRbx = 3, kRbp = 6, kXmm6 = 17 + 6;  // DWARF numbers

// What the code generator appends with every instruction of its prologue.
windlass::Prologue describe() {
  using namespace windlass::prologue;
  Prologue f{.architecture = windlass::Architecture::kX86_64, .code_size = 60};
  f.ops = {
      {1, push(kRbp)},             //  0: push rbp
      {4, SetFramePointer{kRbp}},  //  1: mov  rbp, rsp
      {8, Allocate{64}},           //  4: sub  rsp, 64
      {12, Save{kRbx, 56}},        //  8: mov  [rbp - 8], rbx
      {16, Save{kXmm6, 32}},       // 12: movaps [rbp - 32], xmm6
  };
  f.epilogues = {{46,
                  60,
                  {
                      {50, Save{kXmm6, 32}},        // 46: movaps xmm6, [rbp - 32]
                      {54, Save{kRbx, 56}},         // 50: mov  rbx, [rbp - 8]
                      {58, SetFramePointer{kRbp}},  // 54: lea  rsp, [rbp + 0]
                      {59, push(kRbp)},             // 58: pop  rbp
                  }}};                              // 59: ret
  return f;
}

void print(const windlass::FrameRow& row) {
  std::printf("  %2llu..%2llu  CFA = r%d%+d", static_cast<unsigned long long>(row.begin),
              static_cast<unsigned long long>(row.end), row.cfa.reg(), row.cfa.offset());
  for (const windlass::RegisterEntry entry : row.registers) {
    if (entry.rule.is(windlass::RegisterRule::kAtCfa)) std::printf("  r%d at CFA%+d", entry.reg, entry.rule.offset());
  }
  std::printf("\n");
}

}  // namespace

int main() {
  const windlass::Prologue function = describe();

  // The code stands 0x1000 behind the base of the code range, its unwind information 0x2000 behind it.
  const auto written = windlass::winx64::write(function, {.version = 1, .function = 0x1000, .info = 0x2000});
  if (!written) {
    std::fprintf(stderr, "%s\n", written.error().text().c_str());
    return 1;
  }
  for (const windlass::winx64::RuntimeFunction& entry : written->entries)
    std::printf("RUNTIME_FUNCTION %x..%x, information at %x\n", entry.begin, entry.end, entry.info);
  std::printf("UNWIND_INFO");
  for (const std::byte value : written->bytes) std::printf(" %02x", std::to_integer<unsigned>(value));
  std::printf("\nrows\n");
  const auto rows = windlass::prologue::rows_of(function);
  if (!rows) return 1;
  for (const windlass::FrameRow& row : *rows) print(row);
  return 0;
}
