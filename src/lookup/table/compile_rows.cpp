#include "lookup/table/compile_rows.h"

#include "lookup/sources/stack_end.h"
#include "lookup/table/project.h"

namespace windlass::table {
namespace {

TraceRule no_rule() {
  TraceRule rule{};
  rule.cfa_kind = WL_CFA_UNSUPPORTED;
  return rule;
}

// The rows of one function, with what they leave out.
class FunctionRows {
 public:
  // `proves_ends`: whatever its first row says.
  FunctionRows(const sources::Function& function, Architecture architecture, bool proves_ends, std::uint8_t x_reg,
               TableBuilder& builder)
      : builder_(builder),
        architecture_(architecture),
        proves_ends_(proves_ends),
        x_reg_(x_reg),
        begin_(function.begin),
        end_(function.end),
        at_(function.begin) {
    builder_.begin_function(function.begin, function.end);
  }
  void add(const FrameRow& row) {
    if (row.begin > at_) builder_.row(at_, no_rule());
    if (row.begin == begin_ && sources::is_called(row.cfa, architecture_)) proves_ends_ = true;
    const TraceRule rule = project(row, architecture_, x_reg_);
    builder_.row(row.begin, proves_ends_ ? rule : without_end(rule));
    at_ = row.end;
  }
  void finish() {
    if (at_ < end_) builder_.row(at_, no_rule());
    builder_.end_function();
  }

 private:
  TableBuilder& builder_;
  Architecture architecture_;
  bool proves_ends_;
  std::uint8_t x_reg_;
  std::uint64_t begin_, end_;
  std::uint64_t at_;
};

}  // namespace

std::vector<AddressRange> add_functions(const sources::UnwindSource& source, std::uint8_t x_reg, TableBuilder& builder,
                                        sources::ErrorSink report) {
  std::vector<AddressRange> covered;
  const auto problem = [&](const Error& error) {
    if (error.code != ErrorCode::kUnsupported) report(error);
  };
  builder.set_x_reg(x_reg);
  const auto each = [&](const sources::Function& function) {
    covered.push_back({function.begin, function.end});
    FunctionRows rows(function, *source.architecture(), source.is_windows(), x_reg, builder);
    const auto add = [&](const FrameRow& row) { rows.add(row); };
    source.for_each_row(function, add, problem);
    rows.finish();
    return true;
  };
  source.for_each_function(each, problem);
  return covered;
}

void count_cfa_registers(const sources::UnwindSource& source, CfaRegisterUse& use) {
  const Architecture architecture = *source.architecture();
  const auto ignore = [](const Error&) {};
  const auto count = [&](const FrameRow& row) {
    const RegisterNumber reg = row.cfa.reg();
    if (!row.cfa.is(CfaRule::kExpression) && reg < kTrackable && reg != stack_pointer(architecture) &&
        reg != frame_pointer(architecture))
      ++use[reg];
  };
  const auto each = [&](const sources::Function& function) {
    source.for_each_row(function, count, ignore);
    return true;
  };
  source.for_each_function(each, ignore);
}

Expected<UnwindTable> compile_rows(const sources::UnwindSource& source, sources::ErrorSink report) {
  if (!source.architecture()) return fail(ErrorCode::kUnsupported, "no rows for this machine", 0);
  CfaRegisterUse use(kTrackable);
  count_cfa_registers(source, use);
  TableBuilder builder;
  (void)add_functions(source, choose_extra_register(use, preserved_registers(*source.architecture())), builder, report);
  return builder.finish();
}

}  // namespace windlass::table
