// Input: what the caller knows (one byte), where in the code the pc is (two bytes), then code of either architecture.
#include <cstdint>
#include <cstring>

#include "check.h"
#include "flow/synthesis.h"

namespace {

using namespace windlass;

constexpr std::uint64_t kBase = 0x400000;
constexpr unsigned kMostReads = 200'000;  // an analysis is bounded by instructions, not by what the code says

void check_row(const FrameRow& row, std::uint64_t pc) {
  FUZZ_CHECK(row.begin == pc && row.end == pc + 1);
  FUZZ_CHECK(!row.return_address.is(RegisterRule::kUndefined));
  for (const RegisterEntry entry : row.registers) FUZZ_CHECK(entry.reg < 128);
}

void analyse(Architecture architecture, const std::uint8_t* data, std::size_t size, unsigned flags, std::uint64_t at,
             flow::SynthesisScratch& scratch) {
  unsigned reads = 0;
  const auto read = [&](std::uint64_t address, void* to, std::size_t length) {
    ++reads;
    const std::uint64_t offset = address - kBase;
    if (offset > size || length > size - offset) return false;
    std::memcpy(to, data + offset, length);
    return true;
  };
  const auto kind = [&](std::uint64_t address) {
    if (address - kBase >= size) return flow::CodeKind::kNoCode;
    return (flags & 1) != 0 ? flow::CodeKind::kGenerated : flow::CodeKind::kFile;
  };
  const auto plausible = [&](const FrameRow&) { return (flags & 2) == 0; };
  const auto start_of = [&](std::uint64_t) { return (flags & 4) != 0 ? kBase : 0; };
  const std::uint64_t entry = (flags & 8) != 0 ? kBase : 0;
  const flow::CodeSource source{architecture, read, kind, plausible, start_of, entry};
  const std::uint64_t pc = kBase + at;
  for (const CodeAddress address : {CodeAddress::instruction(pc), CodeAddress::return_address(pc)}) {
    const auto found = flow::synthesize(source, address, scratch);
    if (found && found->start == flow::Start::kNone) check_row(found->row, pc);
    FrameRow entry_row;
    const bool x86 = architecture == Architecture::kX86_64;
    entry_row.cfa = x86 ? CfaRule::at(7, 8) : CfaRule::at(31, 0);
    entry_row.return_address = x86 ? RegisterRule::at_cfa(-8) : RegisterRule::in_register(30);
    (void)flow::contradicts(entry_row, source, address, scratch);
  }
  if (const auto row = flow::epilogue_row(source, pc, scratch)) check_row(*row, pc);
  FUZZ_CHECK(reads < kMostReads);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kHead = 3;
  if (size < kHead) return 0;
  static flow::SynthesisScratch* const scratch = flow::make_scratch();
  const std::uint64_t at = (data[1] | std::uint64_t{data[2]} << 8) % (size - kHead + 1);
  const Architecture architecture = (data[0] & 0x80) != 0 ? Architecture::kAArch64 : Architecture::kX86_64;
  analyse(architecture, data + kHead, size - kHead, data[0], at, *scratch);
  return 0;
}
