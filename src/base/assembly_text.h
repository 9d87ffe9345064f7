// Unwind information as assembly text: what the writers of all machines have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "windlass/format/written.h"
#include "windlass/prologue.h"

namespace windlass {

// Errors where the assembler has no words for something; `where` is the offset into the code.
[[nodiscard]] Failure no_directive(std::uint32_t where, const char* what = "the assembler has no directive for this");

// The directives of a function while they are made.
class DirectiveList {
 public:
  void add(std::uint32_t offset, std::string text, std::uint32_t replaces = 0) {
    list_.push_back({offset, std::move(text), replaces});
  }
  // .seh_handler, in the form that binutils and LLVM share; nothing without a handler.
  void seh_handler(const std::optional<prologue::Handler>& handler, const std::string& symbol);
  // A handler's data and the way back to the code's section, at the function's end; nothing without data.
  void seh_handler_data(const Prologue& prologue, const std::string& section);
  [[nodiscard]] std::vector<prologue::Directive> take() { return std::move(list_); }

 private:
  std::vector<prologue::Directive> list_;
};

// The lines of a source text.
class AssemblyText {
 protected:
  void line(std::string_view text) { text_.append(text) += '\n'; }
  // `directive`: "DB ", ".byte ", with what stands in front of it.
  void bytes(std::string_view directive, std::span<const std::byte> data);
  // The bytes, but for the places of `relocations` (ascending): for these rva(relocation, the addend that stands
  // there).
  template <typename Bytes, typename Rva>
  static void relocated(std::span<const std::byte> data, std::span<const prologue::ImageRelative> relocations,
                        Bytes&& bytes, Rva&& rva) {
    std::uint32_t at = 0;
    for (const prologue::ImageRelative& relocation : relocations) {
      bytes(data.subspan(at, relocation.at - at));
      rva(relocation, addend_at(data, relocation.at));
      at = relocation.at + 4;
    }
    bytes(data.subspan(at));
  }
  std::string take() { return std::move(text_); }

  std::string text_;

 private:
  static std::uint32_t addend_at(std::span<const std::byte> data, std::uint32_t at);
};

// Errors: kMalformed where the options lack a name that the text must have.
template <typename Options>
Expected<void> check_names(const Prologue& prologue, const Options& options) {
  if (options.name.empty() || (prologue.handler && options.handler.empty()))
    return fail(ErrorCode::kMalformed, "assembly needs the names of the function and of its handler", 0);
  return {};
}

// A whole source text: with `directives`, or, where there are none for it, with data. `write(prologue)` gives its
// bytes, in which the handler's RVA is 0: its symbol stands there.
template <typename Source, typename Options, typename Write>
Expected<std::string> source_text(const Prologue& prologue, std::span<const std::byte> code, const Options& options,
                                  const Expected<std::vector<prologue::Directive>>& directives, Write&& write) {
  if (code.size() != prologue.code_size)
    return fail(ErrorCode::kMalformed, "code is not of the size the prologue says", prologue.code_size, code.size());
  Source source(options, code);
  if (directives) return source.with_directives(*directives, prologue.handler.has_value());
  if (const auto ok = check_names(prologue, options); !ok) return Failure(ok.error());
  Prologue addends = prologue;
  if (addends.handler) addends.handler->rva = 0;
  const auto written = write(addends);
  if (!written) return Failure(written.error());
  return source.with_data(*written, prologue.handler.has_value());
}

}  // namespace windlass
