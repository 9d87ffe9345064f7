#include "base/assembly_text.h"

#include <algorithm>
#include <cstring>

namespace windlass {

Failure no_directive(std::uint32_t where, const char* what) { return fail(ErrorCode::kUnsupported, what, where); }

void DirectiveList::seh_handler(const std::optional<prologue::Handler>& handler, const std::string& symbol) {
  if (!handler) return;
  add(0,
      ".seh_handler " + symbol + (handler->on_unwind ? ", @unwind" : "") + (handler->on_exception ? ", @except" : ""));
}

void DirectiveList::seh_handler_data(const Prologue& prologue, const std::string& section) {
  if (!prologue.handler || prologue.handler->data.empty()) return;
  const std::uint32_t at = prologue.code_size;
  add(at, ".seh_handlerdata");
  for (const std::byte value : prologue.handler->data) add(at, ".byte " + std::to_string(std::to_integer<int>(value)));
  add(at, ".section " + section);
}

void AssemblyText::bytes(std::string_view directive, std::span<const std::byte> data) {
  constexpr std::size_t kPerLine = 16;
  for (std::size_t i = 0; i < data.size(); i += kPerLine) {
    text_ += directive;
    for (std::size_t k = i; k < std::min(i + kPerLine, data.size()); ++k)
      text_.append(k == i ? "" : ", ") += std::to_string(std::to_integer<int>(data[k]));
    text_ += '\n';
  }
}

std::uint32_t AssemblyText::addend_at(std::span<const std::byte> data, std::uint32_t at) {
  std::uint32_t addend = 0;
  std::memcpy(&addend, data.data() + at, sizeof addend);
  return addend;
}

}  // namespace windlass
