// Input: an ELF core file.
#include "check.h"
#include "formats/image/core.h"
#include "read_pieces.h"
#include "walk/target/regsets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  const auto core = image::CoreFile::parse(ByteView(reinterpret_cast<const std::byte*>(data), size));
  if (!core) return 0;
  const auto inside = [&](ByteView bytes) { return bytes.empty() || bytes.origin() + bytes.size() <= size; };
  FUZZ_CHECK(core->problems.size() <= image::CoreFile::kMaxProblems);
  std::uint64_t last = 0;
  for (const image::CoreSegment& segment : core->segments) {
    FUZZ_CHECK(inside(segment.bytes) && segment.begin < segment.end);
    FUZZ_CHECK(segment.bytes.size() <= segment.end - segment.begin && segment.begin >= last);
    last = segment.begin;
    (void)core->segment_at(segment.end - 1);
  }
  std::vector<walk::MemoryPiece> pieces;
  for (const image::CoreSegment& segment : core->segments) pieces.push_back({segment.begin, segment.bytes});
  fuzz::read_pieces(std::move(pieces));
  const Architecture architecture =
      core->machine == image::Machine::kX86_64 ? Architecture::kX86_64 : Architecture::kAArch64;
  for (const image::CoreThread& thread : core->threads) {
    FUZZ_CHECK(inside(thread.general) && inside(thread.vector));
    auto registers = walk::general_registers(architecture, thread.general);
    if (registers && architecture == Architecture::kAArch64)
      (void)walk::add_vector_registers(*registers, thread.vector);
  }
  for (const image::CoreMapping& mapping : core->mappings) FUZZ_CHECK(mapping.begin < mapping.end);
  return 0;
}
