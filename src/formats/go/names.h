// Names from a Go program's own tables: the function at an address and the functions inlined there, each with the line
// that is being executed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/go/code_map.h"
#include "windlass/function_ref.h"

namespace windlass::runtimes::go {

// Views of the image's bytes.
struct Place {
  std::string_view function;      // as Go writes it: encoding/json.(*Decoder).Decode
  std::string_view file;          // of the line; empty: not known
  std::uint32_t line = 0;         // 0: not known
  std::uint32_t begins_line = 0;  // of the function; since Go 1.20, else 0
};

// Of an image, which is copied; its bytes must outlive it. Thread-safe.
class Names {
 public:
  static constexpr unsigned kMostInlined = 256;  // at one address; no compiler goes as far

  // Linear in the data, and in position-independent programs in the relocations: the trees of inlined calls count from
  // an address that the table leaves out.
  Names(const CodeMap& map, const Program& program);

  // Calls `place` for what is at an address, innermost first. kNotFound: no function of Go's. Releases before 1.16 do
  // not tell of inlined calls in a form that is known: the line is right, the function the outermost. Linear in the
  // function's instructions, times the calls inlined at the address.
  Expected<void> at(std::uint64_t address, FunctionRef<void(const Place&)> place) const;

 private:
  struct Inlined {
    std::int32_t name = 0, parent = 0;  // of the function; where the call stands, from the outermost's begin
    std::uint32_t begins_line = 0;
  };
  [[nodiscard]] std::optional<ByteView> tree_of(const Function& function) const;
  [[nodiscard]] std::optional<Inlined> inlined(ByteView tree, std::int32_t index) const;
  [[nodiscard]] std::string_view file_of(const Function& function, std::uint64_t address) const;

  CodeMap map_;
  Program program_;
  std::uint64_t data_ = 0;  // what offsets of functions' data count from, since Go 1.18
};

}  // namespace windlass::runtimes::go
