// Input: a minidump.
#include "check.h"
#include "formats/image/minidump.h"
#include "os/proc_maps.h"
#include "read_pieces.h"
#include "walk/target/minidump_context.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass;
  const auto dump = image::MinidumpFile::parse(ByteView(reinterpret_cast<const std::byte*>(data), size));
  if (!dump) return 0;
  const auto inside = [&](ByteView bytes) { return bytes.empty() || bytes.origin() + bytes.size() <= size; };
  FUZZ_CHECK(dump->problems.size() <= image::MinidumpFile::kMaxProblems);
  for (const image::MinidumpMemory& piece : dump->memory) FUZZ_CHECK(inside(piece.bytes));
  std::vector<walk::MemoryPiece> pieces;
  for (const image::MinidumpMemory& piece : dump->memory) pieces.push_back({piece.begin, piece.bytes});
  fuzz::read_pieces(std::move(pieces));
  for (const image::MinidumpModule& module : dump->modules) FUZZ_CHECK(module.begin < module.end);
  for (const image::MinidumpThread& thread : dump->threads) {
    FUZZ_CHECK(inside(thread.context));
    // A context may be of either machine, whatever the dump says of itself.
    for (const Architecture architecture : {Architecture::kX86_64, Architecture::kAArch64})
      (void)walk::context_registers(architecture, thread.context);
  }
  const auto* text = reinterpret_cast<const char*>(dump->linux_maps.data());
  for (const os::ProcMap& map : os::parse_proc_maps({text, dump->linux_maps.size()})) FUZZ_CHECK(map.begin < map.end);
  return 0;
}
