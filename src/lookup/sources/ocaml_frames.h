// The frames of a Windows program that OCaml's native compiler made. It writes no unwind codes, but a table for the
// garbage collector: of each call, its return address and the size of the frame. Read by the symbol caml_frametable.
//
// OCaml: runtime/stack.h, backtrace_nat.c, asmcomp/emitaux.ml; with debug information as pointers (to 4.06) or offsets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "formats/image/pe.h"
#include "windlass/frame_row.h"

namespace windlass::sources {

// Immutable; look-ups do not allocate.
class OcamlFrames {
 public:
  OcamlFrames() = default;
  // None, if the image is of another language, or its symbols or tables cannot be read. Linear in symbols and calls.
  [[nodiscard]] static OcamlFrames read(const image::PeImage& image);

  // Is an RVA among OCaml's code? Such code has no unwind codes, and is no leaf for that.
  [[nodiscard]] bool has_code(std::uint64_t rva) const { return rva >= code_begin_ && rva < code_end_; }
  // From rsp behind the call that returns there, to the caller's rsp. Nothing: no such call.
  [[nodiscard]] std::optional<std::uint32_t> size_at(std::uint64_t return_rva) const;
  [[nodiscard]] std::size_t size() const { return frames_.size(); }
  // Calls call(rva, size) for each call whose last byte is in [begin, end), ascending.
  template <typename Call>
  void each_call(std::uint64_t begin, std::uint64_t end, Call&& call) const {
    for (auto at = std::ranges::lower_bound(frames_, begin + 1, {}, &Frame::rva); at != frames_.end() && at->rva <= end;
         ++at)
      call(std::uint64_t{at->rva} - 1, at->size);
  }
  // The row at the last byte of a call. No register outlives a call in OCaml's code.
  [[nodiscard]] static FrameRow row(std::uint64_t rva, std::uint32_t size);

 private:
  struct Frame {
    std::uint32_t rva, size;
  };
  enum class Form : std::uint8_t { kPointers, kOffsets };
  bool read_all(const image::PeImage& image, std::uint32_t list, Form form);
  bool read_table(const image::PeImage& image, std::uint32_t table, Form form);
  void add(std::uint32_t rva, std::uint32_t size);

  std::vector<Frame> frames_;  // ascending
  std::uint64_t code_begin_ = 0, code_end_ = 0;
};

}  // namespace windlass::sources
