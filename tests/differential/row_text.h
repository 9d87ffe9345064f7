// Full rows written the way the peers write theirs, so that comparing is comparing text.
#pragma once

#include <cctype>
#include <map>
#include <string>

#include <fmt/format.h>

#include "base/registers.h"
#include "formats/dwarf/cfi.h"
#include "formats/dwarf/expression.h"
#include "windlass/frame_row.h"

namespace windlass::peer {

// readelf -wF: "c-16", "v+8", "exp", "vexp", "s", "u", "r5(rdi)" (with a space before the parenthesis).
inline std::string readelf_rule(const RegisterRule* rule, Architecture architecture) {
  if (rule == nullptr) return "u";
  switch (rule->kind()) {
    case RegisterRule::kUndefined: return "u";
    case RegisterRule::kSameValue: return "s";
    case RegisterRule::kAtCfa: return fmt::format("c{:+}", rule->offset());
    case RegisterRule::kCfaValue: return fmt::format("v{:+}", rule->offset());
    case RegisterRule::kInRegister:
      return fmt::format("r{}({})", rule->reg(), register_name(architecture, rule->reg()));
    case RegisterRule::kAtExpression: return "exp";
    case RegisterRule::kExpressionValue: return "vexp";
    default: return "no rule of DWARF";
  }
}

inline std::string readelf_cfa(const CfaRule& rule, Architecture architecture) {
  if (rule.is(CfaRule::kExpression)) return "exp";
  return fmt::format("{}{:+}", register_text(architecture, rule.reg()), rule.offset());
}

// llvm-dwarfdump names registers in capitals; x29 and x30 are W29 and W30 there.
inline std::string llvm_register(RegisterNumber reg, Architecture architecture) {
  std::string name = register_text(architecture, reg);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (architecture == Architecture::kAArch64 && name[0] == 'X') name[0] = 'W';
  if (architecture == Architecture::kAArch64 && name == "SP") name = "WSP";
  return name;
}

// "DW_OP_breg7 RSP+8, DW_OP_deref": only what occurs in compiled code is spelled.
inline std::string llvm_expression(ByteView expression, Architecture architecture) {
  std::string out;
  dwarf::ExpressionReader reader(expression);
  while (!reader.at_end()) {
    const auto op = reader.next();
    if (!op) return out + "<error>";
    if (!out.empty()) out += ", ";
    out += dwarf::expression_op_name(op->opcode);
    const std::uint8_t code = op->opcode;
    if (code >= 0x70 && code <= 0x8f)
      out += fmt::format(" {}{:+}", llvm_register(static_cast<RegisterNumber>(code - 0x70), architecture),
                         static_cast<std::int64_t>(op->first));
    else if (code >= 0x08 && code <= 0x11)  // const*
      out += (code & 1) != 0 ? fmt::format(" {:+}", static_cast<std::int64_t>(op->first))
                             : fmt::format(" {:#x}", op->first);
    else if (code == 0x23 || code == 0x94)  // plus_uconst, deref_size
      out += fmt::format(" {:#x}", op->first);
  }
  return out;
}

inline std::string llvm_offset(const std::string& base, std::int64_t offset) {
  return offset == 0 ? base : fmt::format("{}{:+}", base, offset);
}

inline std::string llvm_rule(const FrameRow& row, const RegisterRule& rule, Architecture architecture) {
  switch (rule.kind()) {
    case RegisterRule::kUndefined: return "undefined";
    case RegisterRule::kSameValue: return "same";
    case RegisterRule::kAtCfa: return "[" + llvm_offset("CFA", rule.offset()) + "]";
    case RegisterRule::kCfaValue: return llvm_offset("CFA", rule.offset());
    case RegisterRule::kInRegister: return llvm_register(rule.reg(), architecture);
    case RegisterRule::kAtExpression: return "[" + llvm_expression(row.expression(rule), architecture) + "]";
    case RegisterRule::kExpressionValue: return llvm_expression(row.expression(rule), architecture);
    default: return "no rule of DWARF";
  }
}

inline std::string llvm_row(const FrameRow& row, RegisterNumber return_column, Architecture architecture) {
  std::string out = fmt::format("{:#x}: CFA=", row.begin);
  if (row.cfa.is(CfaRule::kExpression))
    out += llvm_expression(row.expression(row.cfa), architecture);
  else
    out += llvm_offset(llvm_register(row.cfa.reg(), architecture), row.cfa.offset());
  const bool unsaid = row.return_address == RegisterRule::in_register(return_column);
  std::map<RegisterNumber, std::string> rules;
  if (!unsaid) rules[return_column] = llvm_rule(row, row.return_address, architecture);
  if (row.return_signed) rules[aarch64::kRaSignState] = "1";
  for (const RegisterEntry entry : row.registers) rules[entry.reg] = llvm_rule(row, entry.rule, architecture);
  const char* separator = ": ";
  for (const auto& [reg, rule] : rules) {
    const bool is_state = architecture == Architecture::kAArch64 && reg == aarch64::kRaSignState;
    out += separator + (is_state ? "reg34" : llvm_register(reg, architecture)) + "=" + rule;
    separator = ", ";
  }
  return out;
}

}  // namespace windlass::peer
