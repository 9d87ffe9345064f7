// Spans as a source text of data. Sources: "PE format", the .pdata section (Microsoft); LSB 5.0 section 10.6.1.1.4 for
// FDEs.
#include <fmt/format.h>

#include <algorithm>

#include "base/assembly_text.h"
#include "base/utf8.h"
#include "windlass/format/dwarf.h"
#include "windlass/format/winarm64.h"
#include "windlass/format/winx64.h"
#include "windlass/jit/emit.h"

namespace windlass::emit {
namespace {

using prologue::ImageRelative;

// Made-up RVAs at which spans and records are written. Spans may begin before their function, hence not at 0.
constexpr std::uint32_t kCode = 0x1000;

std::uint64_t address_of(const Span& span, std::span<const Function> functions) {
  return functions[span.function].address + static_cast<std::uint64_t>(span.offset);
}

Error at_span(Error error, const Span& span, std::span<const Function> functions) {
  error.where += address_of(span, functions);
  return error;
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '$';
}

// A symbol as the assembler reads it. Names come out of files and may be any bytes: none may end its line.
Expected<std::string> symbol_text(std::string_view name, Syntax syntax) {
  if (std::ranges::all_of(name, is_plain)) return std::string(name);
  if (syntax == Syntax::kMasm) {
    if (std::ranges::all_of(name, [](char c) { return is_plain(c) || c == '@' || c == '?'; })) return std::string(name);
    return fail(ErrorCode::kUnsupported, "a symbol's name has characters that this assembler does not know", 0);
  }
  std::string quoted = "\"";
  for (std::size_t length = 0; !name.empty(); name.remove_prefix(length)) {
    const Utf8Character character = utf8_character(name);
    length = character.length;
    if (length == 0 || is_hidden(character.code))
      return fail(ErrorCode::kUnsupported, "a symbol's name has characters that no text of assembly can hold", 0);
    if (character.code == '"' || character.code == '\\') quoted += '\\';
    quoted += name.substr(0, length);
  }
  return quoted + '"';
}

class Text : AssemblyText {
 public:
  Text(std::span<const Span> spans, std::span<const Function> functions, const TextOptions& options)
      : functions_(functions), options_(options) {
    const Span::Only other = options.syntax == Syntax::kElf ? Span::kWindows : Span::kElf;
    for (const Span& span : spans)
      if (span.only != other) spans_.push_back(span);
  }

  Expected<std::string> run() {
    if (spans_.empty()) return std::string();
    if (const auto ok = name_symbols(); !ok) return Failure(ok.error());
    const Architecture architecture = spans_.front().prologue.architecture;
    const bool arm = architecture == Architecture::kAArch64;
    if (options_.syntax == Syntax::kElf) return elf(architecture);
    return arm ? windows<winarm64::Writer>(winarm64::WriteOptions{.leaf_entries = false})
               : windows<winx64::Writer>(winx64::WriteOptions{});
  }

 private:
  Expected<void> name_symbols() {
    symbols_.resize(functions_.size());
    for (const Span& span : spans_) {
      auto symbol = symbol_text(functions_[span.function].symbol, options_.syntax);
      if (!symbol) return Failure(at_span(symbol.error(), span, functions_));
      symbols_[span.function] = std::move(*symbol);
    }
    auto handler = symbol_text(options_.handler, options_.syntax);
    if (!handler) return Failure(handler.error());
    handler_ = std::move(*handler);
    return {};
  }

  // ---- Windows ----

  template <typename Writer>
  Expected<std::string> windows(const auto& write_options) {
    constexpr bool kArm = std::is_same_v<Writer, winarm64::Writer>;
    masm_ = options_.syntax == Syntax::kMasm;
    arm_ = kArm;
    Writer writer(write_options);
    std::vector<std::size_t> ends;  // of the entries of each span
    for (const Span& span : spans_) {
      if (const auto ok = add(writer, span); !ok) return Failure(at_span(ok.error(), span, functions_));
      ends.push_back(writer.written().entries.size());
    }
    const auto written = std::move(writer).take();
    open_windows();
    section(".xdata");
    text_ += arm_ && masm_ ? "windlass_unwind_info\n" : masm_ ? "windlass_unwind_info " : "windlass_unwind_info:\n";
    relocated(
        written.bytes, written.relocations, [this](std::span<const std::byte> data) { bytes(data); },
        [&](const ImageRelative& value, std::uint32_t addend) {
          switch (value.base) {
            case ImageRelative::Base::kHandler: return rva(handler_, addend);
            case ImageRelative::Base::kInfo: return rva("windlass_unwind_info", addend);
            case ImageRelative::Base::kFunction: return rva(spans_[value.function], addend);
          }
        });
    end_section(".xdata");
    section(".pdata");
    std::size_t entry = 0;
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      if constexpr (!kArm) advise(spans_[i]);
      for (; entry < ends[i]; ++entry) put_entry(spans_[i], written.entries[entry]);
    }
    end_section(".pdata");
    if (masm_) line(arm_ ? "    END" : "END");
    return take();
  }

  Expected<void> add(winarm64::Writer& writer, const Span& span) const {
    return writer.add(with_handler(span.prologue), kCode);
  }
  Expected<void> add(winx64::Writer& writer, const Span& span) const {
    return writer.add(with_handler(span.prologue), kCode, code_of(span));
  }
  // None where the span goes beyond the function.
  [[nodiscard]] std::span<const std::byte> code_of(const Span& span) const {
    const std::span<const std::byte> code = functions_[span.function].code;
    const auto offset = static_cast<std::size_t>(span.offset);
    const bool inside = span.offset >= 0 && offset <= code.size() && span.prologue.code_size <= code.size() - offset;
    return inside ? code.subspan(offset, span.prologue.code_size) : std::span<const std::byte>();
  }

  // A comment for each call about which Windows asks no handler.
  void advise(const Span& span) {
    for (const std::uint32_t at : winx64::handlers_not_asked(with_handler(span.prologue), code_of(span)))
      line(fmt::format("{} the handler is not asked about the call in front of {}{:+}: put a nop behind the call",
                       masm_ ? ';' : '#', symbols_[span.function], place(span) + at));
  }

  [[nodiscard]] Prologue with_handler(const Prologue& prologue) const {
    Prologue handled = prologue;
    if (!options_.handler.empty())
      handled.handler =
          prologue::Handler{.on_exception = options_.handler_on_exception, .on_unwind = options_.handler_on_unwind};
    return handled;
  }

  void put_entry(const Span& span, const winx64::RuntimeFunction& entry) {
    rva(span, entry.begin);
    rva(span, entry.end);
    rva("windlass_unwind_info", entry.info);
  }
  void put_entry(const Span& span, const winarm64::RuntimeFunction& entry) {
    rva(span, entry.begin);
    if (entry.packed())
      line(fmt::format("{} {}", masm_ ? "    DCD" : ".long", entry.data));
    else
      rva("windlass_unwind_info", entry.data);
  }

  void open_windows() {
    if (!masm_) return;
    std::string before;
    const auto import = [&](const std::string& symbol) {
      if (!symbol.empty() && symbol != before) line(arm_ ? "    IMPORT " + symbol : "EXTERN " + symbol + ":PROC");
      before = symbol;
    };
    import(handler_);
    for (const Span& span : spans_) import(symbols_[span.function]);
  }
  void section(std::string_view name) {
    if (!masm_) return line(fmt::format(".section {},\"dr\"\n.p2align 2", name));
    line(arm_ ? fmt::format("    AREA |{}|,DATA,READONLY,ALIGN=2", name)
              : fmt::format("{} SEGMENT READONLY ALIGN(4) ALIAS(\"{}\")", name.substr(1), name));
  }
  void end_section(std::string_view name) {
    if (masm_ && !arm_) line(fmt::format("{} ENDS", name.substr(1)));
  }
  void rva(const std::string& symbol, std::int64_t addend) {
    if (!masm_) return line(fmt::format(".rva {}{:+}", symbol, addend));
    line(arm_ ? fmt::format("    DCD {}{:+}\n    RELOC 2", symbol, addend)
              : fmt::format("DD IMAGEREL {}{:+}", symbol, addend));
  }
  // An RVA that was written as if the span were at kCode.
  void rva(const Span& span, std::uint32_t value) { rva(symbols_[span.function], place(span) + value - kCode); }
  [[nodiscard]] std::int64_t place(const Span& span) const { return functions_[span.function].addend + span.offset; }
  void bytes(std::span<const std::byte> data) {
    AssemblyText::bytes(!masm_ ? ".byte " : arm_ ? "    DCB " : "DB ", data);
  }

  // ---- ELF ----

  Expected<std::string> elf(Architecture architecture) {
    if (!options_.handler.empty())
      return fail(ErrorCode::kUnsupported,
                  "call frame information names no handler here: format/dwarf.h writes it with one", 0);
    dwarf::Writer writer({.architecture = architecture});
    for (const Span& span : spans_) {
      const dwarf::Place place{.address = kCode};
      const auto ok = span.rows.empty() ? writer.add(span.prologue, place) : writer.add(span.rows, place);
      if (!ok) return Failure(at_span(ok.error(), span, functions_));
    }
    const dwarf::Written written = std::move(writer).take();
    return elf_text(written, architecture == Architecture::kAArch64);
  }

  // GNU ld gives the program no .eh_frame_hdr where the first relocation of an FDE leads into another object (2.40,
  // _bfd_elf_parse_eh_frame): one that does nothing stands in front.
  std::string elf_text(const dwarf::Written& written, bool arm) {
    const char mark = arm ? '%' : '@';
    const char* const none = arm ? "R_AARCH64_NONE" : "R_X86_64_NONE";
    const char* const distance = arm ? "R_AARCH64_PREL32" : "R_X86_64_PC32";
    line(fmt::format(".section .eh_frame,\"a\",{}progbits\n.p2align 3", mark));
    const std::span<const std::byte> all = written.bytes;
    constexpr std::uint32_t kBegin = 8;  // of pc_begin in an FDE
    std::size_t at = 0;
    for (std::size_t i = 0; i < spans_.size(); ++i) {
      const std::size_t begin = written.functions[i].fde + kBegin;
      bytes(all.subspan(at, begin - at));
      const Span& span = spans_[i];
      line(fmt::format(".reloc ., {}, .text", none));
      line(fmt::format(".reloc ., {}, {}{:+}\n.long 0", distance, symbols_[span.function], place(span)));
      at = begin + 4;
    }
    // Without the terminator: what other files have comes behind this.
    bytes(all.subspan(at, all.size() - 4 - at));
    line(fmt::format(".section .note.GNU-stack,\"\",{}progbits", mark));
    return take();
  }

  std::vector<Span> spans_;  // of this format
  const std::span<const Function> functions_;
  const TextOptions& options_;
  std::vector<std::string> symbols_;  // of the functions, as the assembler reads them
  std::string handler_;
  bool masm_ = false;
  bool arm_ = false;
};

}  // namespace

Expected<std::string> text_of(std::span<const Span> spans, std::span<const Function> functions,
                              const TextOptions& options) {
  return Text(spans, functions, options).run();
}

}  // namespace windlass::emit
