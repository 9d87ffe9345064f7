// Input: bytes to write over a small V8's heap: where (2 bytes) and 8 bytes; behind a first byte that is odd over its
// file, too, whose symbols say where the fields are. Whatever they say, reading ends.
#include <algorithm>
#include <cstring>
#include <memory>

#include "check.h"
#include "runtimes/v8/code_map.h"
#include "runtimes/v8/names.h"
#include "runtimes/v8/rows.h"
#include "support/fake_v8.h"

namespace {

using namespace windlass;
namespace fake = test::fake_v8;
namespace v8 = runtimes::v8;

void read_all(const fake::FakeMemory& memory, const v8::ImageFacts& facts) {
  const auto layout = v8::Layout::make(facts);
  auto map = v8::CodeMap::make(facts);
  if (!layout || !map) return;
  const v8::Heap heap(memory, *layout);
  v8::Names names(heap, facts);
  const auto object = map->find(heap, fake::kInstructions + 4, fake::kBase);
  if (!object) return;
  FUZZ_CHECK(object->begin <= fake::kInstructions + 4 && fake::kInstructions + 4 < object->end);
  (void)map->is_still(heap, *object);
  auto code = v8::CompiledCode::read(heap, *object);
  if (!code) return;
  names.fill(**code);
  for (std::uint64_t pc = (*code)->begin; pc < std::min((*code)->end, (*code)->begin + 64); ++pc) {
    FrameRow row;
    if ((*code)->row_at(pc, row)) FUZZ_CHECK(row.begin <= pc && pc < row.end);
    (*code)->each_function(pc - (*code)->begin, [&](std::uint32_t function, std::int32_t position) {
      if (function != v8::Functions::kNone) (void)names.named(function, names.functions().line_of(function, position));
    });
    Registers frame(Architecture::kX86_64);
    frame.set_pc(CodeAddress::instruction(pc));
    frame.set_sp(fake::kStack - 0x100);
    frame.set(6, fake::kStack);
    (void)names.by_slots(**code, pc, frame, memory);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::vector<std::byte> whole_file = fake::file_of(fake::facts());
  static const auto whole_facts = v8::ImageFacts::read({whole_file.data(), whole_file.size()});
  FUZZ_CHECK(whole_facts.has_value());
  if (size == 0) return 0;
  const bool forges = (data[0] & 1) != 0;
  ++data, --size;
  fake::FakeMemory memory = fake::make();
  std::vector<std::byte> file = forges ? whole_file : std::vector<std::byte>();
  constexpr std::size_t kStored = 10;
  for (size = std::min<std::size_t>(size, 64 * kStored); size >= kStored; data += kStored, size -= kStored) {
    const std::size_t at = data[0] | data[1] << 8;
    if (forges && (at & 1) != 0)
      std::memcpy(file.data() + at % (file.size() - 8), data + 2, 8);
    else
      std::memcpy(memory.bytes.data() + at % (fake::kSize - 8), data + 2, 8);
  }
  if (!forges) return read_all(memory, *whole_facts), 0;
  if (const auto facts = v8::ImageFacts::read({file.data(), file.size()})) read_all(memory, *facts);
  return 0;
}
