#include "runtimes/image_text.h"

#include <elf.h>

#include <string>
#include <vector>

#include "runtimes/dynamic_symbol.h"

namespace windlass::runtimes {

Expected<std::uint64_t> find_text(const Memory& memory, std::uint64_t base, SegmentKind kind, std::string_view text) {
  constexpr std::uint64_t kMostBytes = 16U << 20;  // of a segment
  const std::vector<Elf64_Phdr> segments = program_headers(memory, base);
  const std::uint64_t bias = load_bias(segments, base).value_or(0);  // there is one where a segment is looked at
  for (const Elf64_Phdr& segment : segments) {
    const bool is_data = (segment.p_flags & PF_W) != 0;
    if (segment.p_type != PT_LOAD || is_data != (kind == SegmentKind::kData) || segment.p_filesz > kMostBytes) continue;
    const std::uint64_t begin = bias + segment.p_vaddr;
    std::string bytes(segment.p_filesz, '\0');
    if (!memory.read(begin, bytes.data(), bytes.size())) continue;
    if (const std::size_t at = bytes.find(text); at != std::string::npos) return begin + at;
  }
  return fail(ErrorCode::kNotFound, "the image has no such text", base);
}

}  // namespace windlass::runtimes
