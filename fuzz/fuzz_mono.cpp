// Input: patches of 12 bytes to the memory of a small Mono: where (2 bytes), how many bytes (1), from what (1: as it
// stands, or from the memory's begin on), and 8 bytes. Whatever they say, reading ends, and what it finds contains what
// was asked for.
#include <algorithm>
#include <cstring>
#include <vector>

#include "check.h"
#include "runtimes/mono/names.h"
#include "runtimes/mono/rows.h"
#include "support/fake_coreclr.h"

namespace {

using namespace windlass;
using runtimes::mono::CodeBlock;
using runtimes::mono::CodeMap;
using runtimes::mono::Layout;

constexpr std::uint64_t kBase = 0x100000;
constexpr std::size_t kSize = 4096;
constexpr std::uint64_t kDomain = kBase + 64, kTable = kBase + 1088, kChunk = kBase + 1152, kMethodInfo = kBase + 1280,
                        kTrampolineInfo = kBase + 1344, kMethod = kBase + 1408, kClass = kBase + 1472,
                        kTrampoline = kBase + 1536, kText = kBase + 1600, kCode = kBase + 2048;
constexpr std::uint64_t kEnd = kCode + 64;

Layout layout() {
  Layout made;
  made.root_domain = kBase;
  made.code_start = 16, made.code_size = 24, made.kind_byte = 28, made.trampoline_bit = 4;
  made.method_name = 24, made.method_class = 8;
  made.class_name = 16, made.class_namespace = 24, made.class_outer = 32;
  return made;
}

// A method and a trampoline, which name themselves, in one chunk of the domain's table.
std::vector<std::byte> whole() {
  std::vector<std::byte> bytes(kSize);
  const auto put = [&](std::uint64_t at, std::initializer_list<std::uint64_t> words) {
    for (const std::uint64_t word : words) {
      std::memcpy(bytes.data() + (at - kBase), &word, sizeof word);
      at += sizeof word;
    }
  };
  const std::uint64_t counted = std::uint64_t{2} << 32;  // elements, behind the references
  put(kBase, {kDomain});
  put(kDomain + 24, {kTable});
  put(kTable, {kDomain, 1, kChunk});
  put(kChunk, {counted, kEnd, 0, kMethodInfo, kTrampolineInfo});
  put(kMethodInfo, {kMethod, 0, kCode, 32});
  put(kTrampolineInfo, {kTrampoline, 0, kCode + 32, 32 | std::uint64_t{4} << 32});
  put(kMethod, {0, kClass, 0, kText});
  put(kClass, {0, 0, kText + 8, kText + 16, 0});
  put(kTrampoline, {kCode + 32, 32, kText});
  std::memcpy(bytes.data() + (kText - kBase), "method\0\0Class\0\0\0Space", 21);
  constexpr std::uint8_t kMachineCode[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0x31, 0xc0, 0xc9, 0xc3};
  constexpr std::uint8_t kPops[] = {0x41, 0x5b, 0x41, 0xff, 0xe3};
  std::memcpy(bytes.data() + (kCode - kBase), kMachineCode, sizeof kMachineCode);
  std::memcpy(bytes.data() + (kCode + 32 - kBase), kPops, sizeof kPops);
  return bytes;
}

std::vector<std::byte> patched(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> bytes = whole();
  constexpr std::size_t kPatch = 12;
  for (; size >= kPatch; data += kPatch, size -= kPatch) {
    std::uint64_t value = 0;
    std::memcpy(&value, data + 4, sizeof value);
    if ((data[3] & 1) != 0) value = kBase + value % kSize;
    const std::size_t at = (data[0] + 256U * data[1]) % kSize, length = data[2] % 9U;
    std::memcpy(bytes.data() + at, &value, std::min(length, kSize - at));
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const test::BlockMemory memory(kBase, patched(data, size));
  const Layout known = layout();
  CodeMap map(known);
  for (const std::uint64_t pc : {kCode, kCode + 5, kCode + 31, kCode + 34, kEnd, kBase}) {
    const auto block = map.find(memory, pc);
    if (size == 0) FUZZ_CHECK(block.has_value() == (pc >= kCode && pc < kEnd));
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
