// Unwind information as assembly text. Sources: "MASM for x64: unwind helpers" (Microsoft), the .seh_ directives as
// binutils and LLVM read them.
#include <fmt/format.h>

#include "base/assembly_text.h"
#include "formats/winx64/frame_codes.h"
#include "formats/winx64/registers.h"

namespace windlass::winx64 {
namespace {

class Directives : DirectiveList {
 public:
  Directives(const Prologue& prologue, const Piece& piece, const AssemblyOptions& options)
      : prologue_(prologue), piece_(piece), options_(options), masm_(options.assembler == Assembler::kMasm) {}

  Expected<std::vector<Directive>> run() {
    if (const auto ok = begin(); !ok) return Failure(ok.error());
    const InfoContent& content = piece_.content;
    for (auto code = content.codes.rbegin(); code != content.codes.rend(); ++code) add(code->offset, text_of(*code));
    add(content.prolog_size, masm_ ? ".endprolog" : ".seh_endprologue");
    for (const EpilogueV2& epilogue : piece_.epilogues) {
      add(epilogue.begin, ".seh_startepilogue");
      add(epilogue.pops, ".seh_unwindv2start");
      add(epilogue.exit, ".seh_endepilogue");
    }
    end();
    return take();
  }

 private:
  Expected<void> begin() {
    const bool handled = prologue_.handler.has_value();
    if (masm_) {
      // PROC FRAME:handler sets both flags and leaves no room for data.
      if (handled &&
          (!prologue_.handler->on_exception || !prologue_.handler->on_unwind || !prologue_.handler->data.empty()))
        return no_directive(0);
      add(0, fmt::format("{} PROC FRAME{}", options_.name, handled ? ":" + options_.handler : ""));
      return {};
    }
    add(0, ".seh_proc " + options_.name);
    if (options_.version == 2) add(0, ".seh_unwindversion 2");
    seh_handler(prologue_.handler, options_.handler);
    return {};
  }

  void end() {
    const std::uint32_t at = prologue_.code_size;
    if (masm_) return add(at, options_.name + " ENDP");
    seh_handler_data(prologue_, options_.section);
    add(at, ".seh_endproc");
  }

  [[nodiscard]] std::string text_of(const UnwindCode& code) const {
    const std::string_view prefix = masm_ ? "." : ".seh_";
    const std::string_view sigil = masm_ ? "" : "%";
    const std::string_view reg = register_name(code.info);
    switch (code.operation) {
      case Operation::kPushNonvol: return fmt::format("{}pushreg {}{}", prefix, sigil, reg);
      case Operation::kAllocSmall:
        return fmt::format("{}{} {}", prefix, masm_ ? "allocstack" : "stackalloc", code.value);
      case Operation::kSetFpreg:
        return fmt::format("{}setframe {}{}, {}", prefix, sigil, register_name(piece_.content.frame_register),
                           code.value);
      case Operation::kSaveNonvol: return fmt::format("{}savereg {}{}, {}", prefix, sigil, reg, code.value);
      case Operation::kSaveXmm128:
        return fmt::format("{}{} {}xmm{}, {}", prefix, masm_ ? "savexmm128" : "savexmm", sigil, code.info, code.value);
      default: break;
    }
    const std::string_view error_code = code.info == 0                            ? ""
                                        : options_.assembler == Assembler::kClang ? " @code"
                                                                                  : " code";
    return fmt::format("{}pushframe{}", prefix, error_code);
  }

  const Prologue& prologue_;
  const Piece& piece_;
  const AssemblyOptions& options_;
  const bool masm_;
};

// A whole source text.
class Source : AssemblyText {
 public:
  Source(const AssemblyOptions& options, std::span<const std::byte> code)
      : options_(options), code_(code), masm_(options.assembler == Assembler::kMasm) {}

  std::string with_directives(const std::vector<Directive>& list, bool handled) {
    open(handled);
    if (!masm_ || list.empty()) label();
    std::uint32_t at = 0;
    for (const Directive& directive : list) {
      bytes(code_.subspan(at, directive.offset - at));
      at = directive.offset;
      line(directive.text);
    }
    bytes(code_.subspan(at));
    if (list.empty()) close_label();
    return finish();
  }

  std::string with_data(const Written& written, bool handled) {
    open(handled);
    label();
    bytes(code_);
    close_label();
    section(".xdata");
    if (masm_)
      text_ += info_ + " ";  // names the first DB
    else
      line(info_ + ":");
    relocated(
        written.bytes, written.relocations, [this](std::span<const std::byte> data) { bytes(data); },
        [this](const ImageRelative& value, std::uint32_t addend) {
          rva(value.base == ImageRelative::Base::kFunction  ? options_.name
              : value.base == ImageRelative::Base::kHandler ? options_.handler
                                                            : info_,
              addend);
        });
    end_section(".xdata");
    section(".pdata");
    for (const RuntimeFunction& entry : written.entries) {
      rva(options_.name, entry.begin);
      rva(options_.name, entry.end);
      rva(info_, entry.info);
    }
    end_section(".pdata");
    return finish();
  }

 private:
  void open(bool handled) {
    if (masm_ && handled) line("EXTERN " + options_.handler + ":PROC");
    line(masm_ ? ".CODE" : ".section " + options_.section + (options_.section == ".text" ? "" : ",\"xr\""));
    if (!masm_) line(".globl " + options_.name);
  }
  void label() { line(options_.name + (masm_ ? " PROC" : ":")); }
  void close_label() {
    if (masm_) line(options_.name + " ENDP");
  }
  // Uses a grouped section, as compilers do for functions that may be left out. In .xdata itself, binutils would put
  // the handler's data behind the records of others. MASM names the section of a segment by an alias.
  void section(std::string_view name) {
    if (masm_)
      line(fmt::format("{} SEGMENT READONLY ALIGN(4) ALIAS(\"{}\")", name.substr(1), name));
    else
      line(fmt::format(".section {}${},\"dr\"\n.p2align 2", name, options_.name));
  }
  void end_section(std::string_view name) {
    if (masm_) line(fmt::format("{} ENDS", name.substr(1)));
  }
  void rva(const std::string& symbol, std::uint32_t addend) {
    line(fmt::format("{} {}+{}", masm_ ? "DD IMAGEREL" : ".rva", symbol, addend));
  }
  void bytes(std::span<const std::byte> data) { AssemblyText::bytes(masm_ ? "DB " : ".byte ", data); }
  std::string finish() {
    if (masm_) line("END");
    return take();
  }

  const AssemblyOptions& options_;
  const std::span<const std::byte> code_;
  const bool masm_;
  const std::string info_ = options_.name + "_unwind_info";
};

}  // namespace

Expected<std::vector<Directive>> directives_of(const Prologue& prologue, const AssemblyOptions& options,
                                               std::span<const std::byte> code) {
  if (const auto ok = check_names(prologue, options); !ok) return Failure(ok.error());
  const WriteOptions as_bytes{.version = options.version, .saves_can_wait = options.saves_can_wait};
  if (const auto bytes = write(prologue, as_bytes, code); !bytes) return Failure(bytes.error());
  const auto pieces = pieces_of(prologue, options.version, options.saves_can_wait, code);
  if (!pieces) return Failure(pieces.error());
  if (pieces->empty()) return std::vector<Directive>();
  if (pieces->size() > 1) return no_directive((*pieces)[1].begin);
  if (const Piece& only = pieces->front(); only.begin != 0 || only.end != prologue.code_size)
    return no_directive(only.begin != 0 ? only.begin : only.end);
  if (options.version == 3 || (options.version == 2 && options.assembler != Assembler::kClang)) return no_directive(0);
  // LLVM 22 crashes over it: .seh_handlerdata wants the epilogues' distances from an end that is not there yet.
  if (options.version != 1 && prologue.handler && !prologue.handler->data.empty()) return no_directive(0);
  return Directives(prologue, (*pieces)[0], options).run();
}

Expected<std::string> assembly_of(const Prologue& prologue, std::span<const std::byte> code,
                                  const AssemblyOptions& options) {
  return source_text<Source>(
      prologue, code, options, directives_of(prologue, options, code), [&](const Prologue& addends) {
        return write(addends, {.version = options.version, .saves_can_wait = options.saves_can_wait}, code);
      });
}

}  // namespace windlass::winx64
