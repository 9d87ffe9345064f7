// Unwind information as assembly text. Sources: LLVM's AArch64 .seh_ directives; "ARM64 exception handling" and
// kxarm64unw.h of the Windows SDK, which ksarm64.h includes, for the macros of armasm64.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/assembly_text.h"
#include "formats/winarm64/encode_codes.h"
#include "formats/winarm64/frame_codes.h"

namespace windlass::winarm64 {
namespace {

std::string register_text(const UnwindCode& code, unsigned reg) {
  constexpr char kLetters[] = {'?', 'x', 'd', 'q', 'z', 'p'};
  return fmt::format("{}{}", kLetters[static_cast<unsigned>(code.file)], reg);
}

// An instruction's code, and where the instruction ends.
struct Step {
  std::uint32_t end;
  UnwindCode code;
};

// A function in one piece, its codes in the order of the code.
struct Steps {
  struct Epilogue {
    std::uint32_t begin;
    std::vector<Step> steps;
    [[nodiscard]] std::uint32_t last() const { return begin + static_cast<std::uint32_t>(steps.size()) * 4; }
  };
  std::vector<Step> prologue;
  std::vector<Epilogue> epilogues;
};

std::vector<Step> in_order(const std::vector<UnwindCode>& codes, std::uint32_t at) {
  std::vector<Step> steps;
  for (const UnwindCode& code : codes) steps.push_back({at += 4, code});
  return steps;
}

Steps steps_of(RecordContents contents) {
  Steps steps;
  std::reverse(contents.prologue.begin(), contents.prologue.end());
  steps.prologue = in_order(contents.prologue, 0);
  for (const EpilogueCodes& epilogue : contents.epilogues)
    steps.epilogues.push_back({epilogue.start, in_order(epilogue.codes, epilogue.start)});
  return steps;
}

// ---- clang --------------------------------------------------------------------------------------------------------

std::string clang_text(const UnwindCode& code) {
  if (!code.saves()) {
    switch (code.operation) {
      case Operation::kSetFp: return ".seh_set_fp";
      case Operation::kAddFp: return fmt::format(".seh_add_fp {}", code.value);
      case Operation::kSaveNext: return ".seh_save_next";
      case Operation::kPacSignLr: return ".seh_pac_sign_lr";
      case Operation::kNop: return ".seh_nop";
      case Operation::kAllocZ: return fmt::format(".seh_allocz {}", code.value);
      default: return fmt::format(".seh_stackalloc {}", code.value);
    }
  }
  switch (code.operation) {
    case Operation::kSaveR19R20X:
    case Operation::kSaveFplr:
    case Operation::kSaveFplrX: return fmt::format(".seh_{} {}", operation_name(code.operation), code.value);
    case Operation::kSaveAnyReg: {
      const std::string_view form = code.pair ? (code.writeback ? "_px" : "_p") : (code.writeback ? "_x" : "");
      return fmt::format(".seh_save_any_reg{} {}, {}", form, register_text(code, code.reg), code.value);
    }
    default:
      return fmt::format(".seh_{} {}, {}", operation_name(code.operation), register_text(code, code.reg), code.value);
  }
}

class ClangDirectives : DirectiveList {
 public:
  ClangDirectives(const Prologue& prologue, const AssemblyOptions& options) : prologue_(prologue), options_(options) {}

  std::vector<Directive> run(const Steps& steps) {
    add(0, ".seh_proc " + options_.name);
    seh_handler(prologue_.handler, options_.handler);
    for (const Step& step : steps.prologue) add(step.end, clang_text(step.code));
    add(steps.prologue.empty() ? 0 : steps.prologue.back().end, ".seh_endprologue");
    for (const auto& epilogue : steps.epilogues) {
      add(epilogue.begin, ".seh_startepilogue");
      for (const Step& step : epilogue.steps) add(step.end, clang_text(step.code));
      add(epilogue.last(), ".seh_endepilogue");
    }
    seh_handler_data(prologue_, options_.section);
    add(prologue_.code_size, ".seh_endproc");
    return take();
  }

 private:
  const Prologue& prologue_;
  const AssemblyOptions& options_;
};

// ---- armasm64 -----------------------------------------------------------------------------------------------------

class ArmasmDirectives : DirectiveList {
 public:
  ArmasmDirectives(const Prologue& prologue, const AssemblyOptions& options) : prologue_(prologue), options_(options) {}

  Expected<std::vector<Directive>> run(const Steps& steps) {
    if (prologue_.handler && !prologue_.handler->data.empty())
      return no_directive(0, "NESTED_ENTRY has a handler without data only");
    if (steps.epilogues.size() > 4)
      return fail(ErrorCode::kLimit, "the macros of armasm64 count four epilogues", steps.epilogues[4].begin,
                  steps.epilogues.size());
    add(0, fmt::format("NESTED_ENTRY {}{}", options_.name, prologue_.handler ? ",," + options_.handler : ""), 0);
    for (std::size_t i = 0; i < steps.prologue.size(); ++i) {
      const bool sets_fp = i + 1 < steps.prologue.size() && sets_frame(steps.prologue[i], steps.prologue[i + 1]);
      const auto text = prologue_text(steps.prologue[i], sets_fp);
      if (!text) return Failure(text.error());
      if (sets_fp) ++i;
      add(steps.prologue[i].end, *text, sets_fp ? 8 : 4);
    }
    for (const auto& epilogue : steps.epilogues) {
      for (const Step& step : epilogue.steps) {
        const auto text = epilogue_text(step);
        if (!text) return Failure(text.error());
        add(step.end, *text, 4);
      }
      add(epilogue.last() + 4, "EPILOG_END", 4);
    }
    add(prologue_.code_size, "NESTED_END", 0);
    return take();
  }

 private:
  // PROLOG_SAVE_REG_PAIR of fp and lr sets fp to where it stored them.
  static bool sets_frame(const Step& save, const Step& next) {
    if (!save.code.pair || save.code.reg != kFp || save.code.file != RegisterFile::kX) return false;
    const bool sets = next.code.operation == Operation::kSetFp || next.code.operation == Operation::kAddFp;
    return sets && next.code.value == (save.code.writeback ? 0 : save.code.value);
  }

  static std::string name_of(const UnwindCode& code, unsigned reg) {
    if (code.file == RegisterFile::kX && reg == kFp) return "fp";
    if (code.file == RegisterFile::kX && reg == kLr) return "lr";
    return register_text(code, reg);
  }
  static std::string registers(const UnwindCode& code) {
    return name_of(code, code.reg) + (code.pair ? ", " + name_of(code, code.second) : "");
  }

  // The macros count the registers of save_reg_x and save_freg_x as those of the forms without write-back. That is
  // right for the first register only. They accept offsets up to 63 times 8 (with write-back 64).
  static Expected<void> check_save(const Step& step) {
    const UnwindCode& code = step.code;
    if (code.file == RegisterFile::kZ || code.file == RegisterFile::kP) return no_scalable(step);
    if (!code.pair && code.writeback && code.operation != Operation::kSaveAnyReg && code.reg != 19 &&
        !(code.file == RegisterFile::kD && code.reg == 8))
      return no_directive(step.end, "the macros of armasm64 write the wrong code for this register");
    if (code.value / 8 - (code.writeback ? 1 : 0) >= 64)
      return no_directive(step.end, "the macros of armasm64 take no offset as large");
    return {};
  }
  static Failure no_scalable(const Step& step) {
    return no_directive(step.end, "the macros of armasm64 have none for SVE registers");
  }
  static Expected<void> check_alloc(const Step& step) {
    if (step.code.operation == Operation::kAllocZ) return no_scalable(step);
    const std::uint32_t size = step.code.value;
    if (size < 4096 || (size % 4096 == 0 && size / 4096 < 4096)) return {};
    return no_directive(step.end, "no one sub or add instruction has this size");
  }

  static Expected<std::string> prologue_text(const Step& step, bool sets_fp) {
    const UnwindCode& code = step.code;
    if (code.saves()) {
      if (const auto ok = check_save(step); !ok) return Failure(ok.error());
      const bool chain = code.pair && code.file == RegisterFile::kX && code.reg == kFp;
      const std::string_view macro = !code.pair ? "" : chain && !sets_fp ? "_PAIR_NO_FP" : "_PAIR";
      return fmt::format("PROLOG_SAVE_REG{} {}, #{}{}{}", macro, registers(code), code.writeback ? "-" : "", code.value,
                         code.writeback ? "!" : "");
    }
    switch (code.operation) {
      case Operation::kNop: return "PROLOG_NOP";
      case Operation::kSaveNext: return "PROLOG_SAVE_NEXT_PAIR";
      case Operation::kPacSignLr: return "PROLOG_SIGN_RETURN_ADDRESS";
      case Operation::kSetFp:
      case Operation::kAddFp: return no_directive(step.end, "armasm64 sets fp only with stp fp, lr in front");
      default: break;
    }
    if (const auto ok = check_alloc(step); !ok) return Failure(ok.error());
    return fmt::format("PROLOG_STACK_ALLOC {}", code.value);
  }

  static Expected<std::string> epilogue_text(const Step& step) {
    const UnwindCode& code = step.code;
    if (code.saves()) {
      if (const auto ok = check_save(step); !ok) return Failure(ok.error());
      return fmt::format("EPILOG_RESTORE_REG{} {}, #{}{}", code.pair ? "_PAIR" : "", registers(code), code.value,
                         code.writeback ? "!" : "");
    }
    switch (code.operation) {
      case Operation::kNop: return "EPILOG_NOP";
      case Operation::kSaveNext: return "EPILOG_RESTORE_NEXT_PAIR";
      case Operation::kPacSignLr: return "EPILOG_AUTHENTICATE_RETURN_ADDRESS";
      case Operation::kSetFp: return "EPILOG_STACK_RESTORE";
      case Operation::kAddFp: return no_directive(step.end, "armasm64 restores sp from fp without an offset only");
      default: break;
    }
    if (const auto ok = check_alloc(step); !ok) return Failure(ok.error());
    return fmt::format("EPILOG_STACK_FREE {}", code.value);
  }

  const Prologue& prologue_;
  const AssemblyOptions& options_;
};

// ---- whole texts --------------------------------------------------------------------------------------------------

bool wants_instruction(std::string_view macro) {
  return macro == "PROLOG_NOP" || macro == "PROLOG_SAVE_NEXT_PAIR" || macro == "EPILOG_NOP" ||
         macro == "EPILOG_RESTORE_NEXT_PAIR" || macro == "EPILOG_END";
}

class Source : AssemblyText {
 public:
  Source(const AssemblyOptions& options, std::span<const std::byte> code)
      : options_(options), code_(code), armasm_(options.assembler == Assembler::kArmasm64) {}

  std::string with_directives(const std::vector<Directive>& list, bool handled) {
    open(handled);
    if (!armasm_ || list.empty()) label();
    std::uint32_t at = 0;
    for (const Directive& directive : list) {
      words(at, directive.offset - directive.replaces);
      at = directive.offset;
      std::string text = directive.text;
      if (wants_instruction(text)) text += " " + word(at - 4);
      line(text);
    }
    words(at, static_cast<std::uint32_t>(code_.size()));
    return finish();
  }

  std::string with_data(const Written& written, bool handled) {
    open(handled);
    label();
    words(0, static_cast<std::uint32_t>(code_.size()));
    section(".xdata");
    line(armasm_ ? info_ : info_ + ":");
    relocated(
        written.bytes, written.relocations, [this](std::span<const std::byte> data) { bytes(data); },
        [this](const ImageRelative&, std::uint32_t addend) { rva(options_.handler, addend); });
    section(".pdata");
    for (const RuntimeFunction& entry : written.entries) {
      rva(options_.name, entry.begin);
      if (entry.packed())
        line(fmt::format("{} {}", armasm_ ? "    DCD" : ".long", entry.data));
      else
        rva(info_, entry.data);
    }
    return finish();
  }

 private:
  void open(bool handled) {
    if (armasm_) {
      line("#include \"ksarm64.h\"");
      if (handled) line("    IMPORT " + options_.handler);
      if (options_.section != ".text") line(fmt::format("    AREA |{}|,CODE,READONLY", options_.section));
      return;
    }
    line(".section " + options_.section + (options_.section == ".text" ? "" : ",\"xr\""));
    line(".p2align 2\n.globl " + options_.name);
  }
  void label() {
    if (armasm_) line(fmt::format("    AREA |{}|,CODE,READONLY\n    EXPORT {}", options_.section, options_.name));
    line(options_.name + (armasm_ ? "" : ":"));
  }
  void section(std::string_view name) {
    if (armasm_)
      line(fmt::format("    AREA |{}|,DATA,READONLY,ALIGN=2", name));
    else
      line(fmt::format(".section {},\"dr\"\n.p2align 2", name));
  }
  void rva(const std::string& symbol, std::uint32_t addend) {
    // RELOC 2: IMAGE_REL_ARM64_ADDR32NB.
    if (armasm_)
      line(fmt::format("    DCD {}+{}\n    RELOC 2", symbol, addend));
    else
      line(fmt::format(".rva {}+{}", symbol, addend));
  }
  [[nodiscard]] std::string word(std::uint32_t at) const {
    std::uint32_t value = 0;
    std::memcpy(&value, code_.data() + at, sizeof value);
    return fmt::format("{} 0x{:08x}", armasm_ ? "DCD" : ".inst", value);
  }
  void words(std::uint32_t from, std::uint32_t to) {
    for (std::uint32_t at = from; at < to; at += 4) line((armasm_ ? "    " : "") + word(at));
  }
  void bytes(std::span<const std::byte> data) { AssemblyText::bytes(armasm_ ? "    DCB " : ".byte ", data); }
  std::string finish() {
    if (armasm_) line("    END");
    return take();
  }

  const AssemblyOptions& options_;
  const std::span<const std::byte> code_;
  const bool armasm_;
  const std::string info_ = options_.name + "_unwind_info";
};

}  // namespace

Expected<std::vector<Directive>> directives_of(const Prologue& prologue, const AssemblyOptions& options) {
  if (const auto ok = check_names(prologue, options); !ok) return Failure(ok.error());
  if (const auto bytes = write(prologue); !bytes) return Failure(bytes.error());
  const std::vector<Fragment> fragments = fragments_of(prologue);
  const bool leaf = std::all_of(fragments.begin(), fragments.end(), [](const Fragment& f) { return f.leaf(); });
  if (leaf && !prologue.handler) return std::vector<Directive>();
  if (fragments.size() != 1) return no_directive(fragments[1].begin);
  // Without a handler's rule that its epilogues are whole, they may lack their first instruction.
  auto contents = contents_of(fragments[0], prologue.handler ? &*prologue.handler : nullptr);
  if (!contents) return Failure(contents.error());
  const Steps steps = steps_of(std::move(*contents));
  if (options.assembler == Assembler::kClang) return ClangDirectives(prologue, options).run(steps);
  return ArmasmDirectives(prologue, options).run(steps);
}

Expected<std::string> assembly_of(const Prologue& prologue, std::span<const std::byte> code,
                                  const AssemblyOptions& options) {
  return source_text<Source>(prologue, code, options, directives_of(prologue, options),
                             [&](const Prologue& addends) { return write(addends); });
}

}  // namespace windlass::winarm64
