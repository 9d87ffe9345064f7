// Input: patches (fuzz::patch) to the memory of a small SBCL. Whatever they say, reading ends, and what it finds
// contains what was asked for.
#include <span>

#include "check.h"
#include "made_up_process.h"
#include "runtimes/sbcl/names.h"
#include "runtimes/sbcl/rows.h"
#include "support/fake_sbcl.h"

namespace {

using namespace windlass;
namespace fake = test::fake_sbcl;
using runtimes::sbcl::CodeMap;
using runtimes::sbcl::Layout;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fake::FakeMemory whole = fake::make();
  fake::FakeMemory memory = whole;
  fuzz::patch(std::span(memory.bytes).first(fake::kDataSize), fake::kBase, data, size);
  static const Layout known = *Layout::read(fake::make(), fake::kImage);
  const CodeMap map(known);
  for (const std::uint64_t pc : {fake::kText, fake::kFunction, fake::kFunction + fake::kCallAt,
                                 fake::kFunction + fake::kReturnAt, fake::kOther + 7, fake::kBase}) {
    const auto function = map.find(memory, pc);
    if (size == 0) FUZZ_CHECK(function.has_value() == (pc >= fake::kText));
    if (!function) continue;
    FUZZ_CHECK(pc >= function->begin && pc < function->end);
    FUZZ_CHECK(CodeMap::is_still(memory, function->object));
    const std::string name = name_of(memory, known, *function);
    if (size == 0) FUZZ_CHECK(name == (pc < fake::kOther ? "SB-IMPL::FIND" : "(SETF SB-IMPL::FIND 7)"));
    const auto code = runtimes::sbcl::Code::read(memory, *function);
    if (size == 0) FUZZ_CHECK(code.has_value());
    FrameRow row;
    if (code) FUZZ_CHECK((*code)->row_at(pc, row).has_value() && row.begin == pc);
  }
  return 0;
}
