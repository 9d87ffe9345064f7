#include "cli/rows.h"

#include <cstring>
#include <string>
#include <vector>

#include "arch/registers.h"
#include "dwarf/expression.h"

namespace windlass::cli {
namespace {

// Rows say again what rows before them said, so texts are kept, and printed again where nothing has changed.
template <typename Key>
struct Memo {
  Key key;
  std::uint8_t size = 0;  // 0: none
  char text[TextWriter::kCaptured];
};

// Not so what is somewhere else in each row.
bool is_kept(const CfaRule& rule) { return !rule.is(CfaRule::kExpression); }
bool is_kept(const RegisterRule& rule) {
  return !rule.is(RegisterRule::kAtExpression) && !rule.is(RegisterRule::kExpressionValue);
}
bool is_kept(std::uint64_t) { return true; }

class RowPrinter {
 public:
  RowPrinter(TextWriter& out, Architecture architecture) : out_(out), architecture_(architecture) {}

  void json(const FrameRow& row) {
    out_.text("{\"begin\":");
    print(end_, row.begin, [&] { out_.decimal(row.begin); });
    out_.text(",\"end\":");
    print(end_, row.end, [&] { out_.decimal(row.end); });
    out_.text(",\"cfa\":");
    print(memo_of(row.cfa), row.cfa, [&] { json_cfa(row); });
    out_.text(",\"ra\":");
    print(return_address_, row.return_address, [&] { json_rule(row, row.return_address); });
    out_.text(",\"regs\":{");
    bool first = true;
    for (const RegisterEntry entry : row.registers) {
      if (!first) out_.character(',');
      first = false;
      print(registers_[entry.reg], entry.rule, [&] {
        out_.character('"');
        name(entry.reg);
        out_.text("\":");
        json_rule(row, entry.rule);
      });
    }
    out_.text("}}\n");
  }

  void text(const FrameRow& row) {
    out_.text("  ");
    print(end_, row.begin, [&] { out_.hex(row.begin); });
    out_.text("..");
    print(end_, row.end, [&] { out_.hex(row.end); });
    out_.text("  cfa=");
    print(memo_of(row.cfa), row.cfa, [&] { text_cfa(row); });
    out_.text("  ra=");
    print(return_address_, row.return_address, [&] { text_rule(row, row.return_address); });
    for (const RegisterEntry entry : row.registers) {
      print(registers_[entry.reg], entry.rule, [&] {
        out_.text("  ");
        name(entry.reg);
        out_.character('=');
        text_rule(row, entry.rule);
      });
    }
    if (row.signal_frame) out_.text("  signal frame");
    if (row.return_signed) out_.text("  return address signed");
    out_.character('\n');
  }

 private:
  template <typename Key, typename Write>
  void print(Memo<Key>& memo, const Key& key, Write&& write) {
    if (memo.size != 0 && memo.key == key) return out_.short_text(memo.text, memo.size);
    const std::string_view written = out_.capture(write);
    memo.size = 0;
    if (!is_kept(key) || written.size() > sizeof memo.text) return;
    memo.key = key;
    memo.size = static_cast<std::uint8_t>(written.size());
    std::memcpy(memo.text, written.data(), written.size());
  }
  Memo<CfaRule>& memo_of(const CfaRule& cfa) {
    return cfas_[(static_cast<std::uint32_t>(cfa.offset()) / 8 + cfa.reg()) % kCfas];
  }

  void name(RegisterNumber reg) {
    const std::string_view known = register_name(architecture_, reg);
    if (!known.empty()) {
      out_.text(known);
    } else {
      out_.character('r');
      out_.decimal(std::uint64_t{reg});
    }
  }

  void expression(ByteView bytes) {
    scratch_.clear();
    dwarf::append_expression_text(scratch_, bytes, architecture_);
    out_.text(scratch_);
  }

  // `value`: the expression is the value itself, not the address it is saved at.
  void json_expression(ByteView bytes, bool value) {
    out_.text("{\"expr\":\"");
    expression(bytes);  // made of nothing that wants escaping
    out_.text(value ? "\",\"value\":true}" : "\"}");
  }

  void json_cfa(const FrameRow& row) {
    const CfaRule& cfa = row.cfa;
    switch (cfa.kind()) {
      case CfaRule::kRegister: return json_sum(cfa.reg(), cfa.offset());
      case CfaRule::kLoaded:
        out_.text("{\"at\":");
        json_sum(cfa.reg(), cfa.offset());
        return json_offset(",\"offset\":", cfa.addend());
      case CfaRule::kExpression: return json_expression(row.expression(cfa), false);
    }
  }

  void json_rule(const FrameRow& row, const RegisterRule& rule) {
    switch (rule.kind()) {
      case RegisterRule::kUndefined: return out_.text("\"undefined\"");
      case RegisterRule::kSameValue: return out_.text("\"same\"");
      case RegisterRule::kAtCfa: return json_offset("{\"cfa\":", rule.offset());
      case RegisterRule::kCfaValue: return json_offset("{\"cfa_value\":", rule.offset());
      case RegisterRule::kInRegister:
        out_.text("{\"reg\":\"");
        name(rule.reg());
        return out_.text("\"}");
      case RegisterRule::kAtRegister:
        out_.text("{\"at\":");
        json_sum(rule.reg(), rule.offset());
        return out_.character('}');
      case RegisterRule::kRegisterValue: return json_sum(rule.reg(), rule.offset());
      case RegisterRule::kAtExpression: return json_expression(row.expression(rule), false);
      case RegisterRule::kExpressionValue: return json_expression(row.expression(rule), true);
    }
  }

  void json_sum(RegisterNumber reg, std::int64_t offset) {
    out_.text("{\"reg\":\"");
    name(reg);
    json_offset("\",\"offset\":", offset);
  }
  // The end of an object.
  void json_offset(std::string_view key, std::int64_t offset) {
    out_.text(key);
    out_.decimal(offset);
    out_.character('}');
  }

  void text_cfa(const FrameRow& row) {
    const CfaRule& cfa = row.cfa;
    switch (cfa.kind()) {
      case CfaRule::kRegister: return text_sum(cfa.reg(), cfa.offset());
      case CfaRule::kLoaded:
        text_load(cfa.reg(), cfa.offset());
        if (cfa.addend() != 0) out_.signed_decimal(cfa.addend());
        return;
      case CfaRule::kExpression: return expression(row.expression(cfa));
    }
  }

  void text_rule(const FrameRow& row, const RegisterRule& rule) {
    const auto enclosed = [&](char open, char close) {
      out_.character(open);
      expression(row.expression(rule));
      out_.character(close);
    };
    switch (rule.kind()) {
      case RegisterRule::kUndefined: return out_.text("undefined");
      case RegisterRule::kSameValue: return out_.text("same");
      case RegisterRule::kAtCfa:
        out_.text("[cfa");
        out_.signed_decimal(rule.offset());
        return out_.character(']');
      case RegisterRule::kCfaValue: out_.text("cfa"); return out_.signed_decimal(rule.offset());
      case RegisterRule::kInRegister: return name(rule.reg());
      case RegisterRule::kAtRegister: return text_load(rule.reg(), rule.offset());
      case RegisterRule::kRegisterValue: return text_sum(rule.reg(), rule.offset());
      case RegisterRule::kAtExpression: return enclosed('[', ']');
      case RegisterRule::kExpressionValue: return enclosed('(', ')');
    }
  }

  void text_sum(RegisterNumber reg, std::int64_t offset) {
    name(reg);
    out_.signed_decimal(offset);
  }
  void text_load(RegisterNumber reg, std::int64_t offset) {
    out_.character('[');
    text_sum(reg, offset);
    out_.character(']');
  }

  TextWriter& out_;
  Architecture architecture_;
  std::string scratch_;
  static constexpr std::size_t kCfas = 64;
  Memo<std::uint64_t> end_{0, 0, {}};  // of the row before
  Memo<RegisterRule> return_address_{RegisterRule::undefined(), 0, {}};
  std::vector<Memo<CfaRule>> cfas_{kCfas, {CfaRule::at(0, 0), 0, {}}};
  std::vector<Memo<RegisterRule>> registers_{kMaxRowRegister + std::size_t{1}, {RegisterRule::undefined(), 0, {}}};
};

class RowLister final : public source::RowVisitor {
 public:
  RowLister(TextWriter& out, Architecture architecture, bool json)
      : out_(out), printer_(out, architecture), json_(json) {}

  void begin_section(std::string_view name) override {
    listed_ = true;
    if (json_) return;
    out_.text(name);
    out_.text(":\n");
  }
  void row(const FrameRow& row) override { json_ ? printer_.json(row) : printer_.text(row); }
  [[nodiscard]] bool wants_more() const override { return !out_.closed(); }
  [[nodiscard]] bool listed() const { return listed_; }

 private:
  TextWriter& out_;
  RowPrinter printer_;
  bool json_;
  bool listed_ = false;
};

}  // namespace

bool list_rows(const source::UnwindSource& source, TextWriter& out, source::ErrorSink report, bool json) {
  if (!source.architecture()) return false;
  RowLister lister(out, *source.architecture(), json);
  source.for_each_row(lister, report);
  return lister.listed();
}

}  // namespace windlass::cli
