// Windows ARM64 unwind information.
#include "formats/winarm64/exec.h"
#include "formats/winarm64/lower.h"
#include "lookup/sources/pe_source.h"

namespace windlass::sources {
namespace {

class Arm64Source final : public PeSource {
 public:
  explicit Arm64Source(const image::PeImage& image) : PeSource(image, winarm64::kEntrySize), functions_(image_) {}

  std::optional<Architecture> architecture() const override { return Architecture::kAArch64; }

  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    const auto rva = static_cast<std::uint32_t>(address);
    const auto entry = rva == address ? functions_.candidate(rva) : std::nullopt;
    if (!entry) return uncovered(address);
    return winarm64::RowEvaluator(functions_).row_at(*entry, rva, to);
  }

  Expected<HandlerCall> unwind(const Callee& callee, Registers& caller, SavedLocations& saved) const override {
    const winarm64::ExecContext context{callee.bias, callee.pac_mask, 0};
    const auto unwound = winarm64::virtual_unwind(functions_, context, callee.memory, callee.registers, caller, &saved);
    if (!unwound) return Failure(unwound.error());
    const bool handles = unwound->handler != 0;
    return HandlerCall{unwound->establisher_frame, unwound->handler, unwound->handler_data, handles, handles};
  }

  void accept(FormatVisitor& visitor) const override { visitor.winarm64(*this, functions_); }

 private:
  const image::FunctionTable& table() const override { return functions_.table(); }

  // An entry that points at another one has that one's record.
  Expected<void> describe(std::size_t stored, Function& to) const override {
    const winarm64::RuntimeFunction entry = functions_.stored(stored);
    to = begin_function(stored);
    const auto holder = entry.kind() == winarm64::EntryKind::kParent ? winarm64::parent_of(image_, entry)
                                                                     : Expected<winarm64::RuntimeFunction>(entry);
    if (!holder) return Failure(holder.error());
    winarm64::Expansion storage;
    const auto record = winarm64::read_record(image_, *holder, storage);
    if (!record) return Failure(record.error());
    to.primary = holder->begin;
    to.end = to.begin + record->length;
    if (!record->has_handler) return {};
    to.personality.address = record->handler;
    to.language_data.address = record->handler_data;
    to.on_exception = to.on_termination = true;
    return {};
  }

  void lower(std::size_t stored, RowSink callback, ErrorSink report) const override {
    winarm64::RowEvaluator evaluator(functions_);
    if (const auto done = evaluator.for_each_row(functions_.stored(stored), callback, report); !done)
      report(done.error());
  }

  void lower_all(RowVisitor& visitor, ErrorSink report) const override {
    winarm64::RowEvaluator evaluator(functions_);
    evaluator.keep_rows();
    const auto numbered = [&](std::span<const NumberedRow> rows) { visitor.numbered_rows(rows, evaluator.rows()); };
    const auto give = [&](const FrameRow& row) { visitor.row(row); };
    for (std::size_t i = 0; i < table().size() && visitor.wants_more(); ++i) {
      const auto function = functions_.stored(table().stored_index(i));
      if (const auto done = evaluator.for_each_row(function, numbered, give, report); !done) report(done.error());
    }
  }

  winarm64::Functions functions_;
};

}  // namespace

std::unique_ptr<UnwindSource> make_winarm64_source(const image::PeImage& image) {
  return std::make_unique<Arm64Source>(image);
}

}  // namespace windlass::sources
