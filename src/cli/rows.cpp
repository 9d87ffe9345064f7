#include "cli/rows.h"

#include <string>
#include <variant>

#include "arch/registers.h"
#include "dwarf/expression.h"

namespace windlass::cli {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

class RowPrinter {
 public:
  RowPrinter(TextWriter& out, Architecture architecture) : out_(out), architecture_(architecture) {}

  void json(const FrameRow& row) {
    out_.text("{\"begin\":");
    out_.decimal(row.begin);
    out_.text(",\"end\":");
    out_.decimal(row.end);
    out_.text(",\"cfa\":");
    std::visit(Overloaded{[&](const CfaRegister& cfa) {
                            out_.text("{\"reg\":\"");
                            name(cfa.reg);
                            out_.text("\",\"offset\":");
                            out_.decimal(cfa.offset);
                            out_.character('}');
                          },
                          [&](const CfaExpression& cfa) { json_expression(cfa.expression, false); }},
               row.cfa);
    out_.text(",\"ra\":");
    json_rule(row.return_address);
    out_.text(",\"regs\":{");
    bool first = true;
    for (const RegisterEntry& entry : row.registers) {
      out_.text(first ? "\"" : ",\"");
      first = false;
      name(entry.reg);
      out_.text("\":");
      json_rule(entry.rule);
    }
    out_.text("}}\n");
  }

  void text(const FrameRow& row) {
    out_.text("  ");
    out_.hex(row.begin);
    out_.text("..");
    out_.hex(row.end);
    out_.text("  cfa=");
    std::visit(Overloaded{[&](const CfaRegister& cfa) {
                            name(cfa.reg);
                            out_.signed_decimal(cfa.offset);
                          },
                          [&](const CfaExpression& cfa) { expression(cfa.expression); }},
               row.cfa);
    out_.text("  ra=");
    text_rule(row.return_address);
    for (const RegisterEntry& entry : row.registers) {
      out_.text("  ");
      name(entry.reg);
      out_.character('=');
      text_rule(entry.rule);
    }
    if (row.signal_frame) out_.text("  signal frame");
    if (row.return_signed) out_.text("  return address signed");
    out_.character('\n');
  }

 private:
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

  void json_rule(const RegisterRule& rule) {
    std::visit(Overloaded{[&](Undefined) { out_.text("\"undefined\""); }, [&](SameValue) { out_.text("\"same\""); },
                          [&](AtCfa at) {
                            out_.text("{\"cfa\":");
                            out_.decimal(at.offset);
                            out_.character('}');
                          },
                          [&](CfaValue value) {
                            out_.text("{\"cfa_value\":");
                            out_.decimal(value.offset);
                            out_.character('}');
                          },
                          [&](InRegister in) {
                            out_.text("{\"reg\":\"");
                            name(in.reg);
                            out_.text("\"}");
                          },
                          [&](const AtExpression& at) { json_expression(at.expression, false); },
                          [&](const ExpressionValue& value) { json_expression(value.expression, true); }},
               rule);
  }

  void text_rule(const RegisterRule& rule) {
    std::visit(Overloaded{[&](Undefined) { out_.text("undefined"); }, [&](SameValue) { out_.text("same"); },
                          [&](AtCfa at) {
                            out_.text("[cfa");
                            out_.signed_decimal(at.offset);
                            out_.character(']');
                          },
                          [&](CfaValue value) {
                            out_.text("cfa");
                            out_.signed_decimal(value.offset);
                          },
                          [&](InRegister in) { name(in.reg); },
                          [&](const AtExpression& at) {
                            out_.character('[');
                            expression(at.expression);
                            out_.character(']');
                          },
                          [&](const ExpressionValue& value) {
                            out_.character('(');
                            expression(value.expression);
                            out_.character(')');
                          }},
               rule);
  }

  TextWriter& out_;
  Architecture architecture_;
  std::string scratch_;
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
