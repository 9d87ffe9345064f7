#include "lookup/sources/unwind_source.h"

#include "base/static_storage.h"

namespace windlass::sources {
namespace {

class FailedSource final : public UnwindSource {
 public:
  explicit constexpr FailedSource(const Error& why, bool windows = false) : why_(why), windows_(windows) {}
  std::optional<Architecture> architecture() const override { return std::nullopt; }
  Expected<void> row_at(std::uint64_t, FrameRow&) const override { return Failure(why_); }
  Expected<Function> function_at(std::uint64_t) const override { return Failure(why_); }
  void for_each_function(FunctionSink, ErrorSink report) const override { report(why_); }
  void for_each_row(const Function&, RowSink, ErrorSink report) const override { report(why_); }
  void for_each_row(RowVisitor&, ErrorSink report) const override { report(why_); }
  bool is_windows() const override { return windows_; }

 private:
  Error why_;
  bool windows_;
};

constinit const StaticStorage<FailedSource> generated(Error{ErrorCode::kNotFound, "module has no unwind information"});

}  // namespace

Function moved(Function function, std::uint64_t bias) {
  const auto move = [&](std::uint64_t& address) { address += address != 0 ? bias : 0; };
  function.begin += bias;
  function.end += bias;
  function.primary += bias;
  move(function.personality.address);
  move(function.language_data.address);
  move(function.record.address);
  function.text_base += bias;
  function.data_base += bias;
  return function;
}

Expected<HandlerCall> UnwindSource::unwind(const Callee& callee, Registers&, SavedLocations&) const {
  return fail(ErrorCode::kUnsupported, "unwind information is not executed", callee.registers.pc().value());
}

bool UnwindSource::read_image(std::uint64_t, void*, std::size_t) const { return false; }

std::uint64_t UnwindSource::function_start(std::uint64_t) const { return 0; }

const std::string& UnwindSource::build_id() const {
  static const std::string none;
  return none;
}

std::unique_ptr<UnwindSource> make_failed_source(const Error& why, bool windows) {
  return std::make_unique<FailedSource>(why, windows);
}

const UnwindSource& generated_source() { return generated.value; }

void for_each_row_by_function(const UnwindSource& source, std::string_view section, RowVisitor& visitor,
                              ErrorSink report) {
  visitor.begin_section(section);
  source.for_each_function(
      [&](const Function& function) {
        source.for_each_row(
            function, [&](const FrameRow& row) { visitor.row(row); }, report);
        return visitor.wants_more();
      },
      report);
}

}  // namespace windlass::sources
