// A program made up for a test, as a file's bytes: one function. By its call frame information, the return address is
// alone on its stack. On AArch64 the stack is empty.
#pragma once

#include <string>

#include "support/walk_target.h"

namespace windlass::test {

constexpr std::uint64_t kProgramCode = 0x1000, kProgramEnd = 0x2000;  // offsets in the file, and addresses

inline std::string program_file(Architecture architecture) {
  CfiBuilder cfi;
  cfi.fde(cfi.cie(WalkTarget(architecture).cie_spec()), kProgramCode, 64, {});
  cfi.raw().add(Bytes{0, 0, 0, 0});
  const auto file =
      elf_with_eh_frame(architecture, std::vector<std::uint8_t>(64), kProgramCode, cfi.raw().data(), kProgramEnd);
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

}  // namespace windlass::test
