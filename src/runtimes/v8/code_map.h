// Where the code is that a V8 has made: a pc to the object that it is in.
//
// Code stands in an InstructionStream, right behind its header, on a multiple of 64 bytes; its Code points to that and
// to the first instruction. So an object in front of an address is known to be the one by these two, which point at
// each other (v8/v8, src/objects/{instruction-stream,code}.h).
//
// V8 7 to 10 have instructions in the Code object itself, behind a header of 64 to 128 bytes, on a multiple of 32
// bytes. It is known by the types of that object and of its CodeDataContainer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtimes/v8/heap.h"
#include "windlass/error.h"

namespace windlass::runtimes::v8 {

struct CodeObject {
  Tagged stream = 0, code = 0;       // V8 7 to 10: the Code object, its CodeDataContainer
  std::uint64_t begin = 0, end = 0;  // of the instructions
  std::uint32_t kind = 0;
  // Optimised code: the data for deoptimisation and the source positions. Baseline code: the bytecodes (or an
  // InterpreterData that has these), and the offset of each.
  Tagged data = 0, table = 0;
  bool operator==(const CodeObject&) const = default;
};

class CodeMap {
 public:
  static constexpr std::uint64_t kLongest = std::uint64_t{4} << 20;  // bytes of code
  static constexpr std::size_t kMostMaps = 64;

  // kUnsupported: what is missing.
  [[nodiscard]] static Expected<CodeMap> make(const ImageFacts& facts);

  // kNotFound: no code of the heap's is there (but WebAssembly's may be). `lowest`: where the memory begins.
  [[nodiscard]] Expected<CodeObject> find(const Heap& heap, std::uint64_t pc, std::uint64_t lowest);
  // Is it still there?
  [[nodiscard]] bool is_still(const Heap& heap, const CodeObject& object) const;
  // Where the stream has its Code: while this word is there, the code is.
  [[nodiscard]] std::uint64_t code_place(const CodeObject& object) const { return object.stream - 1 + code_in_stream_; }

 private:
  [[nodiscard]] std::optional<CodeObject> read(const Heap& heap, Tagged stream, std::uint64_t begin) const;

  bool in_one_piece_ = false;
  std::uint32_t code_in_stream_ = 8;
  // Of Code: a Code in one piece has neither the first instruction's address nor a stream.
  std::uint32_t code_start_ = 0, code_size_ = 0, code_flags_ = 0, code_stream_ = 0;
  std::uint32_t pointers_end_ = 0;  // what is in front of it are pointers
  std::uint32_t alignment_ = 64;    // of instructions
  // Maps are never moved. V8 7 to 9 have one for each isolate (thread) of a process, others one for all.
  [[nodiscard]] bool is_known_map(Tagged map) const;
  std::vector<Tagged> stream_maps_;  // kMostMaps
  std::uint32_t header_ = 0;         // bytes in front of the code; 0: not known yet
};

}  // namespace windlass::runtimes::v8
