// Input: bytes to write over a small V8's heap and what it has of WebAssembly: where (2 bytes) and 8 bytes; behind a
// first byte that is odd over its file, too, whose symbols say where the fields are. Whatever they say, reading ends.
#include <algorithm>
#include <cstring>
#include <memory>

#include "check.h"
#include "made_up_process.h"
#include "runtimes/v8/code_map.h"
#include "runtimes/v8/names.h"
#include "runtimes/v8/rows.h"
#include "runtimes/v8/wasm_map.h"
#include "runtimes/v8/wasm_names.h"
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

void read_wasm(const fake::FakeMemory& memory) {
  v8::WasmMap map(memory, fake::kWasmVariable, 13);
  v8::WasmNames names(memory);
  for (const std::uint64_t pc : {fake::kWasmJumps + 5, fake::kWasmCode + 8, fake::kWasmNewCode, fake::kWasmShared}) {
    const auto range = map.range_of(pc);
    const auto object = range ? map.find(*range, pc) : fail(ErrorCode::kNotFound, "no WebAssembly", pc);
    if (!object) continue;
    FUZZ_CHECK(object->begin <= pc && pc < object->end);
    (void)map.is_still(*object);
    const auto code = v8::WasmCode::read(memory, *object);
    FrameRow row;
    if (code && (*code)->row_at(pc, row)) FUZZ_CHECK(row.begin <= pc && pc < row.end);
    (void)names.name_of(*object);
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
  fuzz::for_each_store(data, size, [&](std::size_t at, const std::uint8_t* stored) {
    if (forges && (at & 1) != 0)
      fuzz::write_over(file, at, stored);
    else
      fuzz::write_over(memory.bytes, at, stored);
  });
  read_wasm(memory);
  if (!forges) return read_all(memory, *whole_facts), 0;
  if (const auto facts = v8::ImageFacts::read({file.data(), file.size()})) read_all(memory, *facts);
  return 0;
}
