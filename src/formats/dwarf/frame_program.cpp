#include "formats/dwarf/frame_program.h"

#include <algorithm>
#include <cstring>

#include "base/registers.h"
#include "formats/dwarf/encode.h"
#include "formats/dwarf/expression_ops.h"
#include "rows/written_rows.h"

namespace windlass::dwarf {
namespace {

using Kind = FrameInstruction::Kind;

constexpr std::int32_t kUnit = 8;  // a multiple of what every CIE lets offsets count in

// reg + offset
void push_register(Block& block, RegisterNumber reg, std::int32_t offset) {
  if (reg < 32) {
    block.push_back(static_cast<std::uint8_t>(DW_OP_breg0 + reg));
  } else {
    block.push_back(DW_OP_bregx);
    put_uleb(block, reg);
  }
  put_sleb(block, offset);
}

Block copy_of(ByteView bytes) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return {data, data + bytes.size()};
}

bool same_bytes(ByteView a, ByteView b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

bool same_rule(const FrameRow& a, const RegisterRule& a_rule, const FrameRow& b, const RegisterRule& b_rule) {
  if (a_rule.kind() != b_rule.kind()) return false;
  return a_rule.is_expression() ? same_bytes(a.expression(a_rule), b.expression(b_rule)) : a_rule == b_rule;
}

bool same_cfa(const FrameRow& a, const FrameRow& b) {
  if (a.cfa.kind() != b.cfa.kind()) return false;
  return a.cfa.is(CfaRule::kExpression) ? same_bytes(a.expression(a.cfa), b.expression(b.cfa)) : a.cfa == b.cfa;
}

bool same_state(const FrameRow& a, const FrameRow& b) {
  if (!same_cfa(a, b) || !same_rule(a, a.return_address, b, b.return_address) || a.return_signed != b.return_signed ||
      a.registers.size() != b.registers.size())
    return false;
  for (const RegisterEntry entry : a.registers) {
    const RegisterRule* other = b.registers.find(entry.reg);
    if (other == nullptr || !same_rule(a, entry.rule, b, *other)) return false;
  }
  return true;
}

class Program {
 public:
  explicit Program(Architecture architecture) : architecture_(architecture), state_(entry_row(architecture)) {}

  void run(std::span<const FrameRow> rows) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto at = static_cast<std::uint32_t>(rows[i].begin - rows[0].begin);
      if (!remembered_.empty() && remembered_.back() == i) {
        add({.at = at, .kind = Kind::kRestoreState});
        state_ = rows[i];
        remembered_.pop_back();
      } else {
        change(at, rows[i]);
      }
      remember(rows, i);
    }
  }
  [[nodiscard]] std::vector<FrameInstruction> take() { return std::move(instructions_); }

 private:
  // Where it comes back, a state that takes many instructions to say: those that undo an epilogue. Prologue and
  // epilogue have states in common, too, of which each takes one or two.
  void remember(std::span<const FrameRow> rows, std::size_t i) {
    constexpr std::size_t kMany = 3;
    const std::size_t end = remembered_.empty() ? rows.size() : remembered_.back();
    for (std::size_t k = i + 2; k < end; ++k) {
      if (!same_state(rows[i], rows[k])) continue;
      if (changes(rows[k - 1], rows[k]) < kMany) return;
      add({.at = static_cast<std::uint32_t>(rows[i + 1].begin - rows[0].begin), .kind = Kind::kRememberState});
      remembered_.push_back(k);
      return;
    }
  }

  // How many instructions lead from one row to the other.
  [[nodiscard]] std::size_t changes(const FrameRow& from, const FrameRow& to) const {
    Program trial(architecture_);
    trial.state_ = from;
    trial.change(0, to);
    return trial.instructions_.size();
  }

  void add(FrameInstruction instruction) { instructions_.push_back(std::move(instruction)); }

  void change(std::uint32_t at, const FrameRow& to) {
    change_cfa(at, to);
    const RegisterNumber column = return_column(architecture_);
    if (!same_rule(state_, state_.return_address, to, to.return_address))
      change_rule(at, column, to, to.return_address);
    for (const RegisterEntry entry : to.registers) {
      const RegisterRule* before = state_.registers.find(entry.reg);
      if (before == nullptr || !same_rule(state_, *before, to, entry.rule)) change_rule(at, entry.reg, to, entry.rule);
    }
    for (const RegisterEntry entry : state_.registers)
      if (to.registers.find(entry.reg) == nullptr) add({.at = at, .kind = Kind::kRestore, .reg = entry.reg});
    if (state_.return_signed != to.return_signed) add({.at = at, .kind = Kind::kNegateRaState});
    state_ = to;
  }

  void change_cfa(std::uint32_t at, const FrameRow& to) {
    if (same_cfa(state_, to)) return;
    const CfaRule& before = state_.cfa;
    const CfaRule& cfa = to.cfa;
    if (cfa.is(CfaRule::kExpression)) {
      add({.at = at, .kind = Kind::kCfaExpression, .block = copy_of(to.expression(cfa))});
    } else if (cfa.is(CfaRule::kLoaded)) {
      Block block;
      push_register(block, cfa.reg(), cfa.offset());
      block.push_back(DW_OP_deref);
      if (cfa.addend() != 0) {
        block.push_back(DW_OP_consts);
        put_sleb(block, cfa.addend());
        block.push_back(DW_OP_plus);
      }
      add({.at = at, .kind = Kind::kCfaExpression, .block = std::move(block)});
    } else if (cfa.offset() < 0 && cfa.offset() % kUnit != 0) {
      Block block;
      push_register(block, cfa.reg(), cfa.offset());
      add({.at = at, .kind = Kind::kCfaExpression, .block = std::move(block)});
    } else if (!before.is(CfaRule::kRegister) || (before.reg() != cfa.reg() && before.offset() != cfa.offset())) {
      add({.at = at, .kind = Kind::kDefCfa, .reg = cfa.reg(), .offset = cfa.offset()});
    } else if (before.reg() != cfa.reg()) {
      add({.at = at, .kind = Kind::kDefCfaRegister, .reg = cfa.reg()});
    } else {
      add({.at = at, .kind = Kind::kDefCfaOffset, .offset = cfa.offset()});
    }
  }

  void change_rule(std::uint32_t at, RegisterNumber reg, const FrameRow& row, const RegisterRule& rule) {
    FrameInstruction made{.at = at, .reg = reg};
    switch (rule.kind()) {
      case RegisterRule::kUndefined: made.kind = Kind::kUndefined; break;
      case RegisterRule::kSameValue: made.kind = Kind::kSameValue; break;
      case RegisterRule::kInRegister:
        made.kind = rule.reg() == reg ? Kind::kRestore : Kind::kRegister;  // AArch64's leaf: as on entry
        made.source = rule.reg();
        break;
      case RegisterRule::kAtCfa:
      case RegisterRule::kCfaValue:
        made.kind = rule.is(RegisterRule::kAtCfa) ? Kind::kOffset : Kind::kValueOffset;
        made.offset = rule.offset();
        if (rule.offset() % kUnit != 0) from_cfa(made, rule);
        break;
      case RegisterRule::kAtRegister:
      case RegisterRule::kRegisterValue:
        made.kind = rule.is(RegisterRule::kAtRegister) ? Kind::kExpression : Kind::kValueExpression;
        push_register(made.block, rule.reg(), rule.offset());
        break;
      case RegisterRule::kAtExpression:
      case RegisterRule::kExpressionValue:
        made.kind = rule.is(RegisterRule::kAtExpression) ? Kind::kExpression : Kind::kValueExpression;
        made.block = copy_of(row.expression(rule));
        break;
    }
    add(std::move(made));
  }

  // Offsets that are no multiple of what they count in are expressions, which find the CFA on the stack.
  static void from_cfa(FrameInstruction& made, const RegisterRule& rule) {
    made.kind = rule.is(RegisterRule::kAtCfa) ? Kind::kExpression : Kind::kValueExpression;
    made.block.push_back(DW_OP_consts);
    put_sleb(made.block, rule.offset());
    made.block.push_back(DW_OP_plus);
  }

  const Architecture architecture_;
  FrameRow state_;
  std::vector<std::size_t> remembered_;  // the rows whose states are, from before; the next to come is the last
  std::vector<FrameInstruction> instructions_;
};

}  // namespace

RegisterNumber return_column(Architecture architecture) {
  return architecture == Architecture::kAArch64 ? aarch64::kX30 : x86_64::kReturnAddress;
}

FrameRow entry_row(Architecture architecture) {
  FrameRow row;
  if (architecture == Architecture::kAArch64) {
    row.cfa = CfaRule::at(aarch64::kSp, 0);
    row.return_address = RegisterRule::in_register(aarch64::kX30);
  } else {
    row.cfa = CfaRule::at(x86_64::kRsp, 8);
    row.return_address = RegisterRule::at_cfa(-8);
  }
  return row;
}

Expected<std::vector<FrameInstruction>> program_of(std::span<const FrameRow> rows, Architecture architecture) {
  if (const auto ok = check_written_rows(rows); !ok) return Failure(ok.error());
  Program program(architecture);
  program.run(rows);
  return program.take();
}

}  // namespace windlass::dwarf
