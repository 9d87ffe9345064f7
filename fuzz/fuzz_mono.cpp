// Input: patches of 12 bytes to the memory of a small Mono: where (2 bytes), how many bytes (1), from what (1: as it
// stands, or from the memory's begin on), and 8 bytes. Whatever they say, reading ends, and what it finds contains what
// was asked for.
#include <algorithm>
#include <cstring>

#include "check.h"
#include "runtimes/mono/names.h"
#include "runtimes/mono/rows.h"
#include "support/fake_mono.h"

namespace {

using namespace windlass;
namespace fake = test::fake_mono;
using runtimes::mono::CodeBlock;
using runtimes::mono::CodeMap;
using runtimes::mono::Layout;

fake::FakeMemory patched(const std::uint8_t* data, std::size_t size) {
  static const fake::FakeMemory whole = fake::make();
  fake::FakeMemory memory = whole;
  constexpr std::size_t kPatch = 12;
  for (; size >= kPatch; data += kPatch, size -= kPatch) {
    std::uint64_t value = 0;
    std::memcpy(&value, data + 4, sizeof value);
    if ((data[3] & 1) != 0) value = fake::kBase + value % fake::kDataSize;
    const std::size_t at = (data[0] + 256U * data[1]) % fake::kDataSize, length = data[2] % 9U;
    std::memcpy(memory.bytes.data() + at, &value, std::min(length, fake::kDataSize - at));
  }
  return memory;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fake::FakeMemory memory = patched(data, size);
  static const Layout known = *Layout::read(fake::make(), fake::kImage);
  CodeMap map(known);
  for (const std::uint64_t pc :
       {fake::kCode, fake::kCode + 5, fake::kCode + 31, fake::kCode + 34, fake::kCodeEnd, fake::kBase}) {
    const auto block = map.find(memory, pc);
    if (size == 0) FUZZ_CHECK(block.has_value() == (pc >= fake::kCode && pc < fake::kCodeEnd));
    if (!block) continue;
    FUZZ_CHECK(pc >= block->begin && pc < block->end);
    FUZZ_CHECK(map.is_still(memory, *block));
    const std::string name = name_of(memory, known, *block);
    if (size == 0) FUZZ_CHECK(name == (block->is_trampoline ? "[method]" : "Space.Class.method"));
    const auto code = runtimes::mono::Code::read(memory, *block);
    if (size == 0) FUZZ_CHECK(code.has_value());
    if (code) FUZZ_CHECK((*code)->begin == block->begin && (*code)->end == block->end);
  }
  return 0;
}
