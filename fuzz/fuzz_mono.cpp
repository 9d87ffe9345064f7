// Input: patches (fuzz::patch) to the memory of a small Mono. Whatever they say, reading ends, and what it finds
// contains what was asked for.
#include <span>

#include "check.h"
#include "made_up_process.h"
#include "runtimes/mono/names.h"
#include "runtimes/mono/rows.h"
#include "support/fake_mono.h"

namespace {

using namespace windlass;
namespace fake = test::fake_mono;
using runtimes::mono::CodeBlock;
using runtimes::mono::CodeMap;
using runtimes::mono::Layout;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fake::FakeMemory whole = fake::make();
  fake::FakeMemory memory = whole;
  fuzz::patch(std::span(memory.bytes).first(fake::kDataSize), fake::kBase, data, size);
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
