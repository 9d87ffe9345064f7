// In place of aarch64_by_capstone.cpp where there is no Capstone.
#include <algorithm>

#include "profiler/annotate/disassemble.h"

namespace windlass::annotate {

bool has_aarch64_disassembler() { return false; }

void disassemble_aarch64(std::uint64_t begin, ByteView code, std::vector<Instruction>& to) {
  for (std::size_t at = 0; at < code.size(); at += kAArch64Size)
    to.push_back(
        aarch64_word(begin + at, ByteView(code.data() + at, std::min<std::size_t>(kAArch64Size, code.size() - at))));
}

}  // namespace windlass::annotate
