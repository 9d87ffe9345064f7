// Windows x64 unwind information, and what compilers write instead of it: Go, OCaml; GHC writes none.
#include <memory>
#include <vector>

#include "formats/image/pe_names.h"
#include "formats/winx64/exec.h"
#include "formats/winx64/lower.h"
#include "lookup/sources/ec_frames.h"
#include "lookup/sources/ghc_frames.h"
#include "lookup/sources/ocaml_frames.h"
#include "lookup/sources/ocaml_stacks.h"
#include "lookup/sources/pe_source.h"
#include "lookup/sources/winx64_unwound.h"

namespace windlass::sources {
namespace {

class X64Source final : public PeSource {
 public:
  explicit X64Source(const image::PeImage& image)
      : PeSource(image, sizeof(winx64::RuntimeFunction)), functions_(image_) {
    find_dispatchers();
    ocaml_ = OcamlFrames::read(image_);
    ocaml_stacks_ = OcamlStacks::read(image_);
    ghc_ = GhcFrames::read(image_);
    if (image_.is_hybrid() && image_.is_x64_format()) ec_ = make_extra_source(image_);
    go_ = make_go_source(image_, [this](const Error& error) { go_problems_.push_back(error); });
  }

  std::optional<Architecture> architecture() const override { return Architecture::kX86_64; }

  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    if (has_go(address)) return go_row_at(address, to);
    const auto rva = static_cast<std::uint32_t>(address);
    const auto entry = rva == address ? functions_.find(rva) : std::nullopt;
    if (!entry && ghc_.has_code(image_, address, has_entry_))
      return fail(ErrorCode::kUnsupported, "Haskell's code has no rows, and is unwound", address);
    if (!entry) return ocaml_row_at(address, to) ? Expected<void>() : uncovered(address);
    if (const auto found = winx64::row_at(functions_, *entry, rva, to); !found) return found;
    take_convention(to);
    to.signal_frame |= is_dispatcher(*entry);
    return {};
  }

  Expected<HandlerCall> unwind(const Callee& callee, Registers& caller, SavedLocations& saved) const override {
    winx64::Unwound unwound;
    winx64::SavedAddresses addresses;
    const std::uint64_t rva = callee.registers.pc().lookup() - callee.bias;
    if (const auto foreign = foreign_code(rva))
      return has_ec(rva) ? unwind_ec(*ec_, callee, caller, saved) : Failure(*foreign);
    if (has_go(rva)) return no_go_row(rva);
    if (ghc_.has_code(image_, rva, has_entry_)) {
      const auto left =
          ghc_.unwind(image_, callee.bias, callee.memory, callee.registers, has_entry_, unwound, addresses);
      if (!left) return Failure(left.error());
    } else if (const auto done = winx64::virtual_unwind(functions_, callee.bias, callee.memory, callee.registers,
                                                        unwound, &addresses);
               !done) {
      return Failure(done.error());
    }
    const HandlerCall handler = take(unwound, addresses, caller, saved);
    if (image_.is_of_other_system())
      for (const unsigned number : winx64::kPreservedByWindowsAlone) caller.forget(winx64::dwarf_number(number));
    return handler;
  }

  bool may_be_leaf(std::uint64_t rva) const override {
    return PeSource::may_be_leaf(rva) && !has_go(rva) && !ocaml_.has_code(rva) &&
           !ghc_.has_code(image_, rva, has_entry_);
  }

  // Go's linker describes its functions in .pdata as well, but not where they change stacks.
  Expected<Function> function_at(std::uint64_t address) const override {
    if (has_ec(address)) return ec_->function_at(address);
    return has_go(address) ? go_->function_at(address) : PeSource::function_at(address);
  }
  void for_each_function(FunctionSink callback, ErrorSink report) const override {
    for (const Error& problem : go_problems_) report(problem);
    bool wanted = true;
    const auto give = [&](const Function& function) { return wanted = callback(function); };
    const auto give_other = [&](const Function& function) { return has_go(function.begin) || callback(function); };
    if (go_) go_->for_each_function(give, report);
    if (wanted) PeSource::for_each_function(give_other, report);
  }
  void for_each_row(const Function& function, RowSink callback, ErrorSink report) const override {
    if (go_ && function.record.section == RecordPlace::kGoFunctions)
      return go_->for_each_row(function, callback, report);
    PeSource::for_each_row(function, callback, report);
  }
  void for_each_row(RowVisitor& visitor, ErrorSink report) const override {
    for (const Error& problem : go_problems_) report(problem);
    if (go_) go_->for_each_row(visitor, report);
    if (visitor.wants_more()) PeSource::for_each_row(visitor, report);
  }

  void accept(FormatVisitor& visitor) const override { visitor.winx64(*this, functions_); }

 private:
  const image::FunctionTable& table() const override { return functions_.table(); }

  // A part has the handler of the function that it is a part of.
  Expected<void> describe(std::size_t stored, Function& to) const override {
    const winx64::RuntimeFunction entry = functions_.stored(stored);
    to = begin_function(stored);
    if (entry.begin >= entry.end)
      return fail(ErrorCode::kMalformed, "function ends before it begins: RVA", entry.begin, entry.end);
    to.end = entry.end;
    const auto primary = winx64::primary(functions_, entry);
    if (!primary)
      return fail(ErrorCode::kMalformed, "unwind information, or what it is chained to, is unreadable: RVA", entry.info,
                  entry.begin);
    to.primary = primary->begin;
    to.signal_frame = is_dispatcher(entry) || winx64::has_machine_frame(functions_, entry);
    winx64::UnwindInfo info;
    if (!winx64::info_of(functions_, *primary, info) || info.handler == 0) return {};
    to.personality.address = info.handler;
    to.language_data.address = info.handler_data;
    to.on_exception = info.has(winx64::kEhandler);
    to.on_termination = info.has(winx64::kUhandler);
    return {};
  }

  void lower(std::size_t stored, RowSink callback, ErrorSink report) const override {
    const winx64::RuntimeFunction entry = functions_.stored(stored);
    if (!is_dispatcher(entry) && !image_.is_of_other_system())
      return winx64::lower(functions_, entry, callback, report);
    FrameRow marked;
    const auto mark = [&](const FrameRow& row) {
      marked = row;
      take_convention(marked);
      marked.signal_frame |= is_dispatcher(entry);
      callback(marked);
    };
    winx64::lower(functions_, entry, mark, report);
  }

  void lower_all(RowVisitor& visitor, ErrorSink report) const override {
    winx64::RowEvaluator evaluator(functions_);
    const auto give_numbered = [&](std::span<const NumberedRow> rows) {
      visitor.numbered_rows(rows, evaluator.rows());
    };
    const auto give = [&](const FrameRow& row) { visitor.row(row); };
    FrameRow changed;
    const auto give_by_convention = [&](const FrameRow& row) {
      changed = row;
      take_convention(changed);
      visitor.row(changed);
    };
    for (std::size_t i = 0; i < table().size() && visitor.wants_more(); ++i) {
      const std::size_t stored = table().stored_index(i);
      const winx64::RuntimeFunction entry = functions_.stored(stored);
      if (is_dispatcher(entry))
        lower(stored, give, report);
      else if (image_.is_of_other_system())
        evaluator.for_each_row(entry, give_by_convention, report);
      else
        evaluator.for_each_row(entry, give_numbered, give, report);
    }
  }

  void take_convention(FrameRow& row) const {
    if (image_.is_of_other_system()) winx64::take_system_v(row);
  }

  [[nodiscard]] bool has_ec(std::uint64_t rva) const {
    return ec_ && rva >> 32 == 0 && image_.machine_at(static_cast<std::uint32_t>(rva)) == image::PeMachine::kArm64Ec;
  }
  [[nodiscard]] bool has_go(std::uint64_t rva) const {
    if (!go_) return false;
    const auto function = go_->function_at(rva);
    return function || function.error().code != ErrorCode::kNotFound;
  }
  static Failure no_go_row(std::uint64_t rva) {
    return fail(ErrorCode::kUnsupported, "Go's table says nothing of the stack here", rva);
  }
  // No other row is asked for: where Go says nothing, the code is followed.
  Expected<void> go_row_at(std::uint64_t rva, FrameRow& to) const {
    const auto found = go_->row_at(rva, to);
    if (!found && found.error().code == ErrorCode::kNotFound) return no_go_row(rva);
    return found;
  }

  // Return addresses are looked up at the last byte of their call.
  bool ocaml_row_at(std::uint64_t rva, FrameRow& to) const {
    if (const FrameRow* const row = ocaml_stacks_.row_at(rva)) {
      to = *row;
      return true;
    }
    const auto size = ocaml_.size_at(rva + 1);
    if (size) to = OcamlFrames::row(rva, *size);
    return size.has_value();
  }

  // What the system jumps to on top of interrupted code. Windows' ntdll.dll describes it by a machine frame; Wine 8's
  // makes its own call frame out of the context, so that the interrupted pc looks like a return address.
  void find_dispatchers() {
    constexpr std::string_view kNames[] = {"KiUserExceptionDispatcher", "KiUserApcDispatcher"};
    const auto exports = image::PeExports::open(image_);
    if (!exports || exports->module_name() != "ntdll.dll") return;
    for (std::size_t i = 0; i < std::size(kNames); ++i)
      if (const auto found = exports->find(kNames[i]); found) dispatchers_[i] = found->rva;
  }
  [[nodiscard]] bool is_dispatcher(const winx64::RuntimeFunction& entry) const {
    return entry.begin != 0 && (entry.begin == dispatchers_[0] || entry.begin == dispatchers_[1]);
  }

  std::uint32_t dispatchers_[2] = {};
  winx64::Functions functions_;
  OcamlFrames ocaml_;
  OcamlStacks ocaml_stacks_;
  GhcFrames ghc_;
  std::vector<Error> go_problems_;
  std::unique_ptr<UnwindSource> ec_;  // of ARM64EC code; null: the image has none
  std::unique_ptr<UnwindSource> go_;  // null: no program of Go's
  const struct {
    const winx64::Functions& functions;
    bool operator()(std::uint32_t rva) const { return functions.find(rva).has_value(); }
  } has_entry_{functions_};
};

}  // namespace

std::unique_ptr<UnwindSource> make_winx64_source(const image::PeImage& image) {
  return std::make_unique<X64Source>(image);
}

}  // namespace windlass::sources
