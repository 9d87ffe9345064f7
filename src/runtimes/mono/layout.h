// The offsets of a Mono's fields, and the address of its root domain, by its exported accessors (accessor.h, and two
// functions that do slightly more).
//
// mono/mono, mono/metadata/domain-internals.h (MonoDomain, MonoJitInfo), class-private-definition.h (MonoClass).
#pragma once

#include <cstdint>
#include <string_view>

#include "runtimes/needed.h"
#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes::mono {

struct Layout {
  std::uint64_t root_domain = 0;  // the variable that points to it
  // MonoJitInfo. Its first word is the method's, or the trampoline's information.
  std::uint32_t code_start = 0, code_size = 0;
  std::uint32_t kind_byte = 0;  // and which of its bits says that it is of a trampoline
  std::uint8_t trampoline_bit = 0;
  // MonoMethod and MonoClass
  std::uint32_t method_name = 0, method_class = 0;
  std::uint32_t class_name = 0, class_namespace = 0, class_outer = 0;

  // Of the image at an address. kUnreadable; kUnsupported: an accessor is missing, or is not what it was up to Mono
  // 6.12.
  [[nodiscard]] static Expected<Layout> read(const Memory& memory, std::uint64_t image);
};

}  // namespace windlass::runtimes::mono
