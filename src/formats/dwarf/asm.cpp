// Call frame information as .cfi_ directives: "CFI directives" of the GNU assembler's manual, which LLVM's follows.
#include <cstring>

#include <fmt/format.h>

#include "base/assembly_text.h"
#include "formats/dwarf/encode.h"
#include "windlass/format/dwarf.h"

namespace windlass::dwarf {
namespace {

using Kind = FrameInstruction::Kind;

// Expressions have no directive: their bytes, which are the same whatever offsets count in.
std::string escape(const FrameInstruction& instruction) {
  Block block;
  put_instruction(block, instruction, {});
  std::string text = ".cfi_escape ";
  for (std::size_t i = 0; i < block.size(); ++i) text += fmt::format("{}0x{:02x}", i == 0 ? "" : ", ", block[i]);
  return text;
}

std::string text_of(const FrameInstruction& instruction) {
  const RegisterNumber reg = instruction.reg;
  switch (instruction.kind) {
    case Kind::kDefCfa: return fmt::format(".cfi_def_cfa {}, {}", reg, instruction.offset);
    case Kind::kDefCfaRegister: return fmt::format(".cfi_def_cfa_register {}", reg);
    case Kind::kDefCfaOffset: return fmt::format(".cfi_def_cfa_offset {}", instruction.offset);
    case Kind::kOffset: return fmt::format(".cfi_offset {}, {}", reg, instruction.offset);
    case Kind::kValueOffset: return fmt::format(".cfi_val_offset {}, {}", reg, instruction.offset);
    case Kind::kRegister: return fmt::format(".cfi_register {}, {}", reg, instruction.source);
    case Kind::kUndefined: return fmt::format(".cfi_undefined {}", reg);
    case Kind::kSameValue: return fmt::format(".cfi_same_value {}", reg);
    case Kind::kRestore: return fmt::format(".cfi_restore {}", reg);
    case Kind::kRememberState: return ".cfi_remember_state";
    case Kind::kRestoreState: return ".cfi_restore_state";
    case Kind::kNegateRaState: return ".cfi_negate_ra_state";
    case Kind::kCfaExpression:
    case Kind::kExpression:
    case Kind::kValueExpression: break;
  }
  return escape(instruction);
}

Expected<void> check(const Prologue& prologue, const AssemblyOptions& options) {
  if (prologue.architecture != Architecture::kX86_64 && prologue.architecture != Architecture::kAArch64)
    return fail(ErrorCode::kUnsupported, "no frames are written for this architecture", 0);
  if (options.name.empty() || (prologue.handler && options.personality.empty()))
    return fail(ErrorCode::kMalformed, "assembly needs the names of the function and of its personality routine", 0);
  return {};
}

class Source : AssemblyText {
 public:
  Source(const Prologue& prologue, std::span<const std::byte> code, const AssemblyOptions& options)
      : prologue_(prologue), code_(code), options_(options) {}

  std::string run(const std::vector<Directive>& directives) {
    const bool arm = prologue_.architecture == Architecture::kAArch64;
    const std::string& name = options_.name;
    line(fmt::format(".section {},\"ax\",{}progbits", options_.section, arm ? '%' : '@'));
    line(fmt::format(".p2align {}\n.globl {}\n.type {}, {}function\n{}:", arm ? 2 : 4, name, name, arm ? '%' : '@',
                     name));
    std::uint32_t at = 0;
    for (const Directive& directive : directives) {
      put_code(at, directive.offset);
      at = directive.offset;
      line(directive.text);
    }
    put_code(at, prologue_.code_size);
    line(fmt::format(".size {}, . - {}", name, name));
    if (prologue_.handler) handler(arm ? '%' : '@');
    line(fmt::format(".section .note.GNU-stack,\"\",{}progbits", arm ? '%' : '@'));
    return take();
  }

 private:
  // Instructions of AArch64 are marked as such.
  void put_code(std::uint32_t from, std::uint32_t to) {
    if (prologue_.architecture != Architecture::kAArch64) return bytes(".byte ", code_.subspan(from, to - from));
    for (std::uint32_t at = from; at < to; at += 4) {
      std::uint32_t word = 0;
      std::memcpy(&word, code_.data() + at, sizeof word);
      line(fmt::format(".inst 0x{:08x}", word));
    }
  }

  // The data, and the pointer through which the routine is found at any address. GCC puts both beside its functions.
  // Texts of several functions may follow one another.
  void handler(char mark) {
    line(
        fmt::format(".section .gcc_except_table,\"a\",{}progbits\n.p2align 2\n{}_language_data:", mark, options_.name));
    bytes(".byte ", prologue_.handler->data);
    const std::string pointer = "DW.ref." + options_.personality;
    line(
        fmt::format(".ifndef {0}\n.hidden {0}\n.weak {0}\n"
                    ".section .data.rel.local.{0},\"awG\",{1}progbits,{0},comdat\n.p2align 3\n"
                    ".type {0}, {1}object\n.size {0}, 8\n{0}:\n.quad {2}\n.endif",
                    pointer, mark, options_.personality));
  }

  const Prologue& prologue_;
  const std::span<const std::byte> code_;
  const AssemblyOptions& options_;
};

}  // namespace

Expected<std::vector<Directive>> directives_of(const Prologue& prologue, const AssemblyOptions& options) {
  if (const auto ok = check(prologue, options); !ok) return Failure(ok.error());
  const auto rows = rows_of(prologue);
  if (!rows) return Failure(rows.error());
  const auto program = program_of(*rows, prologue.architecture);
  if (!program) return Failure(program.error());
  DirectiveList list;
  list.add(0, ".cfi_startproc");
  if (options.b_key && prologue.architecture == Architecture::kAArch64) list.add(0, ".cfi_b_key_frame");
  if (rows->front().signal_frame) list.add(0, ".cfi_signal_frame");
  if (prologue.handler) {
    list.add(0, ".cfi_personality 0x9b, DW.ref." + options.personality);  // indirect, pcrel, sdata4
    list.add(0, fmt::format(".cfi_lsda 0x1b, {}_language_data", options.name));
  }
  for (const FrameInstruction& instruction : *program) list.add(instruction.at, text_of(instruction));
  list.add(prologue.code_size, ".cfi_endproc");
  return list.take();
}

Expected<std::string> assembly_of(const Prologue& prologue, std::span<const std::byte> code,
                                  const AssemblyOptions& options) {
  if (code.size() != prologue.code_size)
    return fail(ErrorCode::kMalformed, "code is not of the size the prologue says", prologue.code_size, code.size());
  if (prologue.architecture == Architecture::kAArch64 && code.size() % 4 != 0)
    return fail(ErrorCode::kMalformed, "code of AArch64 that is no multiple of 4 bytes", prologue.code_size);
  const auto directives = directives_of(prologue, options);
  if (!directives) return Failure(directives.error());
  for (const Directive& directive : *directives)
    if (prologue.architecture == Architecture::kAArch64 && directive.offset % 4 != 0)
      return fail(ErrorCode::kUnsupported, "a row begins within an instruction", directive.offset);
  return Source(prologue, code, options).run(*directives);
}

}  // namespace windlass::dwarf
