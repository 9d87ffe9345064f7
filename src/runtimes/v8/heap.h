// Objects on the heap of a V8, read while the process runs and the collector moves them. So each value is checked
// against its type before use.
//
// v8/v8, include/v8-internal.h (tagging), src/objects/{map,string,instance-type}.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtimes/v8/image_facts.h"
#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes::v8 {

// From this version on there is an InstructionStream for instructions, which points to the Code. Before, Code holds its
// instructions, and points to a CodeDataContainer.
inline constexpr std::int32_t kStreamsSince = 11;

inline constexpr std::uint32_t kMostInlineNames = 75;  // scope-info.h: kScopeInfoMaxInlinedLocalNamesSize

// Where things are in one version; all that is needed to find functions in frames.
struct Layout {
  // kUnsupported: what is missing, or of another kind (compressed pointers).
  [[nodiscard]] static Expected<Layout> make(const ImageFacts& facts);

  std::uint32_t map_type = 0;
  std::uint32_t function_shared = 0, shared_name = 0, shared_script = 0;
  std::uint32_t script_name = 0, script_source = 0, array_length = 0, array_data = 0, bytecode_data = 0;
  bool has_plain_lengths = false;  // since V8 14.9 lengths of arrays are 32-bit numbers; those of bytecodes are tagged
  std::uint32_t string_length = 0, one_byte_chars = 0, two_byte_chars = 0, cons_first = 0, cons_second = 0;
  std::uint32_t sliced_parent = 0, sliced_offset = 0, thin_actual = 0, external_resource = 0;
  std::uint32_t scope_first = 0, scope_locals = 0;    // words of a ScopeInfo
  std::uint32_t scope_data = 8;                       // where these begin
  std::uint32_t scope_most_names = kMostInlineNames;  // of more variables the names are elsewhere
  // Offsets from the frame pointer.
  std::int32_t frame_context = 0, frame_function = 0, frame_bytecodes = 0, frame_bytecode_offset = 0;
  // Types.
  std::uint16_t first_nonstring = 0, map = 0, shared_type = 0, script_type = 0, scope_type = 0, bytecode_type = 0;
  std::uint16_t stream_type = 0, code_type = 0;  // of what holds instructions, and of what that points to
  std::uint16_t interpreter_data = 0, weak_array = 0;
  std::uint16_t baseline_data = 0;             // of V8 9 alone; 0: there are none
  std::array<std::uint16_t, 2> byte_arrays{};  // both the same where there is one only; fixed arrays likewise
  std::array<std::uint16_t, 3> fixed_arrays{};
  std::uint16_t shared_wrapper = 0;  // 0: there are none
  std::uint32_t wrapper_shared = 0;
  std::uint8_t representation_mask = 0, encoding_mask = 0, one_byte = 0, cons = 0, external = 0, sliced = 0, thin = 0;
  // Kinds of code.
  std::uint32_t kind_mask = 0, kind_baseline = 0;
  std::uint32_t kind_regexp = 0, kind_wasm_entry = 0;  // a regular expression; what JavaScript calls WebAssembly by
  // Code::flags' kind. V8 7 and 8 number kinds otherwise: theirs are kinds of V8 10 here.
  bool has_old_kinds = false;
  [[nodiscard]] std::uint32_t kind_of(std::uint32_t flags) const;
  // Of the data for deoptimisation: words behind the length.
  std::uint32_t deopt_inlined_count = 0, deopt_literals = 0, deopt_shared = 0, deopt_positions = 0;

  [[nodiscard]] bool is_byte_array(std::uint16_t type) const {
    return type == byte_arrays[0] || type == byte_arrays[1];
  }
  [[nodiscard]] bool is_fixed_array(std::uint16_t type) const {
    return type == fixed_arrays[0] || type == fixed_arrays[1] || type == fixed_arrays[2];
  }
};

// A tagged value: a pointer to an object is odd; a small integer has its value in the upper half.
using Tagged = std::uint64_t;
[[nodiscard]] constexpr bool is_object(Tagged value) { return (value & 3) == 1; }
[[nodiscard]] constexpr std::optional<std::int32_t> small_integer(Tagged value) {
  if ((value & 0xffff'ffff) != 0) return std::nullopt;
  return static_cast<std::int32_t>(value >> 32);
}

class Heap {
 public:
  static constexpr unsigned kDeepestString = 64, kMostStrings = 1024;

  Heap(const Memory& memory, const Layout& layout) : memory_(memory), layout_(layout) {}

  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] const Memory& memory() const { return memory_; }
  [[nodiscard]] bool read(Tagged object, std::uint32_t offset, void* to, std::size_t size) const {
    return is_object(object) && memory_.read(object - 1 + offset, to, size);
  }
  [[nodiscard]] std::optional<Tagged> field(Tagged object, std::uint32_t offset) const;
  // The type of an object whose map is one; 0 of anything else.
  [[nodiscard]] std::uint16_t type_of(Tagged object) const;
  [[nodiscard]] bool is(Tagged object, std::uint16_t type) const { return type != 0 && type_of(object) == type; }
  // Bytes of a byte array, at most `longest`.
  [[nodiscard]] std::optional<std::vector<std::byte>> bytes_of(Tagged array, std::size_t longest) const;
  // An element of a fixed array.
  [[nodiscard]] std::optional<Tagged> element(Tagged array, std::uint32_t index) const;
  [[nodiscard]] std::optional<std::uint32_t> length_of(Tagged array) const;
  [[nodiscard]] std::optional<std::uint32_t> length_of_bytecodes(Tagged bytecodes) const;

  // The place of a string's characters. Nothing: they are not side by side, the value is no string, or it cannot be
  // read.
  struct Characters {
    std::uint64_t address = 0;
    std::uint32_t length = 0;
    bool one_byte = true;  // ISO 8859-1; else UTF-16
  };
  [[nodiscard]] std::optional<Characters> characters(Tagged string) const;
  // UTF-8 of its first characters, `longest` at most; nothing: it is no string. One put together of others, too.
  [[nodiscard]] std::optional<std::string> text(Tagged string, std::uint32_t longest) const;

 private:
  struct Head {
    std::uint8_t representation = 0;
    bool one_byte = true, has_address = false;  // an external string keeps where its characters are
    std::uint32_t length = 0;
  };
  [[nodiscard]] std::optional<Head> string_head(Tagged string) const;
  [[nodiscard]] std::optional<Characters> whole(Tagged string) const;
  struct Left {
    std::uint32_t characters = 0;
    unsigned strings = kMostStrings;
  };
  bool add_text(Tagged string, unsigned depth, Left& left, std::string& to) const;

  const Memory& memory_;
  const Layout& layout_;
};

}  // namespace windlass::runtimes::v8
