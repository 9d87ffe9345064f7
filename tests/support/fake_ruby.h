// A Ruby made up in memory, 3.1 or a later one. The context of a thread runs two activations of the evaluator. Each is
// a Ruby function that calls a method written in C, which calls the next one.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtimes/ruby/layout.h"
#include "support/made_up_memory.h"

namespace windlass::test::fake_ruby {

inline constexpr std::uint64_t kBase = 0x100000;
inline constexpr std::size_t kSize = 0x4000;
inline constexpr std::uint64_t kModule = kBase, kPointer = kBase + 0x100, kVector = kBase + 0x200;
inline constexpr std::uint64_t kStorage = kBase + 0x300, kContext = kBase + 0x400, kSymbols = kBase + 0x500;
inline constexpr std::uint64_t kFrameCount = 8, kFrames = kBase + 0xe00;  // of 3.1
inline constexpr std::uint64_t kEnd = kBase + 0x1000;                     // of the virtual machine's stack
inline constexpr std::uint64_t kStack = kBase + 0x800, kMachineStack = 0x7fff00010000;
inline constexpr std::uint64_t kBlock = kBase + 0x1400, kMain = kBase + 0x1500, kMethod = kBase + 0x1600;
inline constexpr std::uint64_t kDefinition = kBase + 0x1700, kBodies = kBase + 0x1800, kTexts = kBase + 0x2000;
inline constexpr std::uint64_t kLines = kBase + 0x2800, kIndex = kBase + 0x2900, kIds = kBase + 0x2a00;
inline constexpr std::uint64_t kEncoded = 0x7f0000000000, kStorageOffset = 8;
inline constexpr std::uint64_t kSp = kMachineStack - 0x1000;
inline constexpr std::uint32_t kPlace = 60, kInstructions = 200, kLineCount = 4;
inline constexpr std::uint64_t kId = 600 << 4 | 1;  // in the second array of identifiers

// Of Ruby 3.`minor`.
inline runtimes::ruby::Layout layout(int minor = 1) {
  runtimes::ruby::Layout made{.interpreter = {}, .symbols = kSymbols, .lines = minor == 1 ? 120U : 112U};
  made.interpreter.kind = WL_RUBY;
  wl_ruby& ruby = made.interpreter.ruby;
  ruby.module = kModule, ruby.context = kStorageOffset;
  ruby.frame_bytes = minor < 3 ? 64 : 56;
  ruby.machine_stack = minor == 1 ? 0x90 : 0x98;
  ruby.compiled = minor == 1 ? 280 : 288;
  ruby.compiled_second = minor == 1 ? 3 : minor == 2 ? 0 : 2;
  ruby.string_begin = minor == 1 ? 16 : 24;
  return made;
}

class FakeMemory final : public MadeUpMemory {
 public:
  explicit FakeMemory(const runtimes::ruby::Layout& layout = fake_ruby::layout())
      : MadeUpMemory(kBase, kSize), layout_(layout) {}
  // Not embedded where it is too long for that.
  void put_text(std::uint64_t at, std::string_view text) {
    const std::uint32_t begin = layout_.interpreter.ruby.string_begin;
    const bool embedded = text.size() <= 23, has_length = !embedded || begin > 16;
    put(at, std::uint64_t{5} | (embedded ? 0 : 1 << 13) | (has_length ? 0 : text.size() << 14));
    if (has_length) put(at + 16, std::uint64_t{text.size()});
    if (!embedded) put(at + 24, at + 64);
    put_bytes(at + (embedded ? begin : 64), text);
  }
  [[nodiscard]] std::uint64_t frame_at(std::uint64_t number) const {
    return kEnd - (kFrameCount - number) * layout_.interpreter.ruby.frame_bytes;
  }
  void put_frame(std::uint64_t number, std::uint64_t pc, std::uint64_t iseq, std::uint64_t method,
                 std::uint64_t flags) {
    const std::uint64_t at = frame_at(number), ep = kStack + number * 32 + 16;
    put(at, pc), put(at + 16, iseq), put(at + 32, ep);
    put(ep - 16, method), put(ep, flags);
  }
  void put_iseq(std::uint64_t at, std::uint64_t body, std::uint64_t label) {
    put(at, std::uint64_t{0x1a | 7 << 12}), put(at + 16, body);
    put(body, std::uint64_t{kInstructions} << 32), put(body + 8, kEncoded);
    put(body + 64, kTexts + 0x100), put(body + 80, label);
    const std::uint64_t lines = body + layout_.lines;
    put(lines, kLines), put(lines + 16, kLineCount), put(lines + 24, kIndex);
  }

 private:
  runtimes::ruby::Layout layout_;
};

// The lines 10, 20, 30 and 40 begin at the positions 0, 3, 58 and 130.
inline void put_lines(FakeMemory& memory) {
  for (std::uint32_t i = 0; i < kLineCount; ++i) memory.put(kLines + 12 * i, 10 * (i + 1));
  for (std::uint64_t i = 0; i < 54; ++i) {
    std::uint64_t ranks = 0;
    (void)memory.read(kIndex + i / 9 * 8, &ranks, sizeof ranks);
    memory.put(kIndex + i / 9 * 8, ranks | (i < 3 ? 1ULL : 2ULL) << (i % 9 * 7));
  }
  memory.put(kIndex + 48, std::uint32_t{2});
  std::uint64_t before = 1;  // the block's second word; each further one has two
  for (unsigned part = 2; part < 8; ++part) before |= 2ULL << (part - 1) * 9;
  memory.put(kIndex + 56, before);
  memory.put(kIndex + 64, std::uint64_t{1} << (58 - 54)), memory.put(kIndex + 72, std::uint64_t{1} << (130 - 54 - 64));
}

inline FakeMemory make(int minor = 1) {
  FakeMemory memory(layout(minor));
  const std::uint64_t machine_stack = kContext + layout(minor).interpreter.ruby.machine_stack;
  memory.put(kModule, std::uint64_t{3});
  memory.put(kPointer + 8, kVector);
  memory.put(kVector + 3 * 16, kStorage);
  memory.put(kStorage + kStorageOffset, kContext);
  memory.put(kContext, kStack), memory.put(kContext + 8, (kEnd - kStack) / 8);
  memory.put(kContext + 0x10, memory.frame_at(0));
  memory.put(machine_stack, kMachineStack), memory.put(machine_stack + 16, std::uint64_t{0x8000});
  memory.put_frame(0, 0, 0, kMethod, 0x55550083);
  memory.put_frame(1, kEncoded + 8 * kPlace, kBlock, 0, 0x22220023);
  memory.put_frame(2, 0, 8, 0, 0x66660081);  // what C gave as a block
  memory.put_frame(3, 0, 0, kMethod, 0x55550083);
  memory.put_frame(4, kEncoded + 8, kMain, 0, 0x44440023);
  memory.put_frame(5, 0, 0, kMethod, 0x55550083);  // called by C
  memory.put_frame(6, 0, 0, 0, 0x79990023);
  memory.put_frame(7, kEncoded, kMain, 0, 0x79990023);  // which the main thread's may look like
  memory.put_iseq(kBlock, kBodies, kTexts);
  memory.put_iseq(kMain, kBodies + 0x200, kTexts + 0x80);
  memory.put_text(kTexts, "block (2 levels) in through_blocks");
  memory.put_text(kTexts + 0x80, "<main>");
  memory.put(kTexts + 0x100, std::uint64_t{7} | 1 << 13 | 2 << 15);  // the path and the real one
  memory.put(kTexts + 0x110, kTexts + 0x180), memory.put(kTexts + 0x118, kTexts + 0x80);
  memory.put_text(kTexts + 0x180, "/some/file.rb");
  put_lines(memory);
  memory.put(kMethod, std::uint64_t{0x1a | 6 << 12}), memory.put(kMethod + 16, kDefinition);
  memory.put(kDefinition + 32, kId);
  memory.put(kSymbols + 16, kIds);
  memory.put(kIds, std::uint64_t{7}), memory.put(kIds + 16, std::uint64_t{2}), memory.put(kIds + 32, kIds + 0x100);
  memory.put(kIds + 0x108, kIds + 0x200);
  memory.put(kIds + 0x200, std::uint64_t{7}), memory.put(kIds + 0x210, std::uint64_t{1024});
  memory.put(kIds + 0x220, kIds + 0x300);
  memory.put(kIds + 0x300 + std::uint64_t{600 % 512} * 16, kTexts + 0x300);
  memory.put_text(kTexts + 0x300, "each_with_index");
  return memory;
}

}  // namespace windlass::test::fake_ruby
