// Input: patches of 12 bytes to the memory of a small SBCL: where (2 bytes), how many bytes (1), from what (1: as it
// stands, or from the memory's begin on), and 8 bytes. Whatever they say, reading ends, and what it finds contains what
// was asked for.
#include <algorithm>
#include <cstring>

#include "check.h"
#include "runtimes/sbcl/names.h"
#include "runtimes/sbcl/rows.h"
#include "support/fake_sbcl.h"

namespace {

using namespace windlass;
namespace fake = test::fake_sbcl;
using runtimes::sbcl::CodeMap;
using runtimes::sbcl::Layout;

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
