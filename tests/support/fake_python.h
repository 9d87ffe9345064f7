// A CPython made up in memory, by offsets of its own: two threads, the first of which runs three functions in two
// activations of the evaluator.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "runtimes/python/layout.h"
#include "support/made_up_memory.h"

namespace windlass::test::fake_python {

inline constexpr std::uint64_t kBase = 0x100000;
inline constexpr std::size_t kSize = 0x4000;
inline constexpr std::uint64_t kRoot = kBase, kInterpreter = kBase + 0x100, kThread = kBase + 0x400;
inline constexpr std::uint64_t kOtherThread = kBase + 0x600, kInner = kBase + 0x800, kOuter = kBase + 0x900;
inline constexpr std::uint64_t kShim = kBase + 0xa00, kOutermost = kBase + 0xb00, kLastShim = kBase + 0xc00;
inline constexpr std::uint64_t kCode = kBase + 0x1000, kOtherCode = kBase + 0x1400, kName = kBase + 0x1800;
inline constexpr std::uint64_t kFile = kBase + 0x1900, kLines = kBase + 0x1a00;
inline constexpr std::uint64_t kCodeType = 0x7000, kStringType = 0x8000;
inline constexpr std::uint64_t kPointer = 0x7f0000001700, kOtherPointer = 0x7f0000002700;  // of the threads
inline constexpr std::uint32_t kVersion = 77, kPlace = 6, kFirstLine = 10;

class FakeMemory final : public MadeUpMemory {
 public:
  FakeMemory() : MadeUpMemory(kBase, kSize) {}
  void put_text(std::uint64_t address, std::string_view text) {
    put(address, std::int64_t{2});
    put(address + 8, kStringType);
    put(address + 16, std::uint64_t{text.size()});
    put(address + 24, std::uint64_t{0x1234567});                 // hash
    put(address + 32, std::uint32_t{1 << 2 | 1 << 5 | 1 << 6});  // one byte a character, compact, ASCII
    put_bytes(address + 40, text);
  }
};

// By 3.12's forms. `versions`: code objects are numbered; else what they are is their identity.
inline runtimes::python::Layout layout(bool versions = true) {
  runtimes::python::Layout made{.interpreter = {}, .minor = 12, .lines = runtimes::python::Lines::kLocations};
  wl_python& list = made.interpreter.python;
  list.interpreters = kRoot;
  list.threads = 72;
  list.next_thread = 8;
  list.thread_id = 136;
  list.current = 56;
  list.frame_size = 72;
  list.frame_code = 0;
  list.frame_previous = 8;
  list.frame_place = 56;
  list.frame_mark = 70;
  list.activations = WL_ACTIVATION_SHIM;
  list.code_begin = 192;
  list.code_version = versions ? 92 : 0;
  list.code_words = 16;
  list.skipped_word = 4;
  list.code_file = 112;
  list.code_name = 120;
  list.code_lines = 136;
  list.string_hash = 24;
  list.bytes_size = 16;
  list.bytes_begin = 32;
  made.code_line = 68;
  made.code_qualname = 120;
  made.ascii_begin = 40;
  made.compact_begin = 56;
  made.code_type = kCodeType;
  made.string_type = kStringType;
  return made;
}

inline void put_frame(FakeMemory& memory, std::uint64_t at, std::uint64_t code, std::uint64_t previous, char owner) {
  memory.put(at, code);
  memory.put(at + 8, previous);
  memory.put(at + 56, code + 192 + kPlace);
  memory.put(at + 70, owner);
}

inline void put_code(FakeMemory& memory, std::uint64_t at, std::uint32_t version) {
  memory.put(at, std::int64_t{3});
  memory.put(at + 8, kCodeType);
  memory.put(at + 68, kFirstLine);
  memory.put(at + 92, version);
  memory.put(at + 112, kFile);
  memory.put(at + 120, kName);
  memory.put(at + 136, kLines);
}

inline FakeMemory make() {
  FakeMemory memory;
  memory.put(kRoot, kInterpreter);
  memory.put(kInterpreter + 72, kThread);
  memory.put(kThread + 8, kOtherThread);
  memory.put(kThread + 136, kPointer);
  memory.put(kThread + 56, kInner);
  memory.put(kOtherThread + 136, kOtherPointer);
  put_frame(memory, kInner, kCode, kOuter, 0);
  put_frame(memory, kOuter, kOtherCode, kShim, 1);
  put_frame(memory, kShim, 1, kOutermost, WL_OWNED_BY_C);
  put_frame(memory, kOutermost, kCode, kLastShim, 0);
  put_frame(memory, kLastShim, 1, 0, WL_OWNED_BY_C);
  put_code(memory, kCode, kVersion);
  put_code(memory, kOtherCode, kVersion + 1);
  memory.put_text(kName, "Class.method");
  memory.put_text(kFile, "/some/file.py");
  // Two instructions of the first line, one of the third, two of none.
  const std::uint8_t lines[] = {0x80 | 0 << 3 | 1, 0x00, 0x80 | 12 << 3 | 0, 0x00, 0x00, 0x80 | 15 << 3 | 1};
  memory.put(kLines + 16, std::uint64_t{sizeof lines});
  std::memcpy(memory.bytes.data() + (kLines + 32 - kBase), lines, sizeof lines);
  return memory;
}

}  // namespace windlass::test::fake_python
