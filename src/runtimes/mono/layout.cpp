#include "runtimes/mono/layout.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>

#include "flow/stack_effect.h"
#include "runtimes/accessor.h"
#include "runtimes/dynamic_symbol.h"

namespace windlass::runtimes::mono {
namespace {

// Reads the image's exports; the first thing that is missing is kept.
class Exports : public Needed {
 public:
  Exports(const Memory& memory, std::uint64_t image) : memory_(memory), image_(image) {}

  std::uint32_t field(std::string_view accessor) {
    return take(find(accessor), [&](std::uint64_t at) { return field_of_accessor(memory_, at); });
  }
  std::uint64_t variable(std::string_view accessor) {
    return take(find(accessor), [&](std::uint64_t at) { return variable_of_accessor(memory_, at); });
  }
  // Of an accessor that keeps its argument in rbp or rbx while it enters and leaves the runtime (MONO_ENTER_GC_UNSAFE):
  // the one load from there.
  std::uint32_t guarded_field(std::string_view accessor) {
    return take(find(accessor), [&](std::uint64_t at) { return read_guarded(at); });
  }
  // mono_jit_info_get_method: the byte with the bits `async` and `is_trampoline`, and the latter's.
  void read_kind(Layout& to) {
    const auto code = read(find("mono_jit_info_get_method"));
    constexpr std::uint8_t kLoadByte[] = {0x0f, 0xb6, 0x47}, kTest = 0xa8;
    const auto load = std::ranges::search(code, kLoadByte);
    // movzx eax, byte [rdi + N]; test al, async; jne; test al, is_trampoline
    constexpr std::size_t kFirst = 4, kSecond = 8;
    const auto at = static_cast<std::size_t>(load.begin() - code.begin());
    if (load.empty() || at + kSecond + 1 >= code.size() || code[at + kFirst] != kTest || code[at + kSecond] != kTest)
      return note({ErrorCode::kUnsupported, "the runtime does not show which of its code are trampolines", image_});
    to.kind_byte = code[at + 3];
    to.trampoline_bit = code[at + kSecond + 1];
  }

 private:
  static constexpr std::size_t kLongest = 128;
  using Code = std::array<std::uint8_t, kLongest>;

  std::uint64_t find(std::string_view name) {
    const auto found = find_dynamic_symbol(memory_, image_, name);
    if (!found) note({ErrorCode::kUnsupported, "the runtime does not export what is needed", image_});
    return found.value_or(0);
  }
  Code read(std::uint64_t at) {
    Code code{};
    if (at != 0 && !memory_.read(at, code.data(), code.size()))
      note({ErrorCode::kUnreadable, "an accessor's code cannot be read", at});
    return code;
  }
  template <typename Read>
  auto take(std::uint64_t at, Read&& read) -> decltype(read(at))::value_type {
    if (at == 0) return 0;
    const auto found = read(at);
    if (!found) note(found.error());
    return found.value_or(0);
  }

  Expected<std::uint32_t> read_guarded(std::uint64_t at) {
    constexpr std::uint8_t kMoveToRbp = 0xfd, kMoveToRbx = 0xfb;  // of mov REG, rdi: 48 89
    const Code code = read(at);
    const ByteView view(std::as_bytes(std::span(code)).data(), code.size());
    std::uint8_t base = 0;  // ModRM.rm
    std::optional<std::uint32_t> found;
    flow::StraightCode line(view, at, code.size());
    while (const auto effect = line.next()) {
      if (effect->kind == flow::StackEffect::Kind::kReturn) break;
      const std::uint8_t* bytes = code.data() + line.offset();
      if (bytes[0] == 0x48 && bytes[1] == 0x89 && (bytes[2] == kMoveToRbp || bytes[2] == kMoveToRbx))
        base = bytes[2] & 7;
      if (base != 0 && effect->length == 4 && bytes[0] == 0x48 && bytes[1] == 0x8b &&
          (bytes[2] & 0xc7) == (0x40 | base)) {
        if (found) return fail(ErrorCode::kUnsupported, "an accessor loads more than a field", at);
        found = bytes[3];
      }
    }
    if (!found) return fail(ErrorCode::kUnsupported, "an accessor loads no field", at);
    return *found;
  }

  const Memory& memory_;
  std::uint64_t image_;
};

}  // namespace

Expected<Layout> Layout::read(const Memory& memory, std::uint64_t image) {
  Exports exports(memory, image);
  Layout to;
  to.root_domain = exports.variable("mono_get_root_domain");
  to.code_start = exports.field("mono_jit_info_get_code_start");
  to.code_size = exports.field("mono_jit_info_get_code_size");
  exports.read_kind(to);
  to.method_name = exports.field("mono_method_get_name");
  to.method_class = exports.field("mono_method_get_class");
  to.class_name = exports.guarded_field("mono_class_get_name");
  to.class_namespace = exports.guarded_field("mono_class_get_namespace");
  to.class_outer = exports.field("mono_class_get_nesting_type");
  if (exports.error()) return Failure(*exports.error());
  return to;
}

}  // namespace windlass::runtimes::mono
