#include "runtimes/runtime_code.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/monotonic.h"
#include "lookup/table/project.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes {

namespace {

os::FileIdentity file_of(const Runtime& runtime, const os::ProcMap& map) {
  os::FileIdentity file = map.file;
  if (file.build_id.empty()) file.build_id = runtime.build_id();
  return file;
}

}  // namespace

RuntimeCode::RuntimeCode(std::unique_ptr<Runtime> runtime, std::shared_ptr<const Memory> memory, const os::ProcMap& map,
                         const TimedMemory* timed)
    : PublishedCode(map.begin, file_of(*runtime, map)),
      runtime_(std::move(runtime)),
      memory_(std::move(memory)),
      timed_(timed) {}

void RuntimeCode::see(std::uint64_t time) const {
  needed_ = std::max(needed_, time);
  if (timed_ != nullptr) timed_->set_time(time);
}

// True if nothing can be read at the method's address any more. The caller has seen this code run, so the method is
// still the answer.
bool RuntimeCode::is_last(const Method& method) const { return !read_value<std::uint8_t>(*memory_, method.begin); }

std::uint64_t RuntimeCode::end() const {
  const std::lock_guard hold(lock_);
  return runtime_->is_understood() ? ~std::uint64_t{0} : 0;
}

void RuntimeCode::set_time(std::uint64_t time) {
  const std::lock_guard hold(lock_);
  see(time);
}

void RuntimeCode::keep(const std::shared_ptr<const Method>& method, std::uint64_t seen) {
  if (known_.size() >= kMaxMethods || method->bytes() > kMaxBytes - std::min(bytes_, kMaxBytes)) {
    known_.clear();
    bytes_ = 0;
  }
  // What it overlaps was there before it.
  auto at = known_.lower_bound(method->begin);
  if (at != known_.begin() && std::prev(at)->second.method->end > method->begin) --at;
  while (at != known_.end() && at->first < method->end) {
    bytes_ -= at->second.method->bytes();
    at = known_.erase(at);
  }
  bytes_ += method->bytes();
  known_[method->begin] = {method, seen};
}

Expected<std::shared_ptr<const Method>> RuntimeCode::method_at(std::uint64_t address) {
  auto after = known_.upper_bound(address);
  if (after != known_.begin()) {
    Known& known = std::prev(after)->second;
    if (known.method->contains(address)) {
      if (known.method->lasting || known.seen >= needed_) return known.method;
      const std::uint64_t now = monotonic_ns();
      if (runtime_->is_still(*known.method) || is_last(*known.method)) {
        known.seen = now;
        return known.method;
      }
    }
  }
  const std::uint64_t now = monotonic_ns();
  auto found = runtime_->method_at(address);
  if (!found) return Failure(found.error());
  std::shared_ptr<const Method> method = std::move(*found);
  if (!method->contains(address)) return fail(ErrorCode::kNotFound, "no method contains the address", address);
  keep(method, now);
  return method;
}

std::uint64_t RuntimeCode::frame_function(std::uint64_t address, const Registers& frame, const Memory& memory) {
  const std::lock_guard hold(lock_);
  const auto method = method_at(address);
  if (!method) return 0;
  const auto words = runtime_->teaches() ? runtime_->words_of(**method, frame.pc()) : std::nullopt;
  if (!words || words->empty()) return function_number(**method, address, frame, memory);
  // Frames with equal words run the same function.
  std::uint64_t key = address;
  for (const wl_taken& word : *words) {
    if ((word.flags & WL_TAKEN_SILENT) != 0 || !frame.has(word.reg)) continue;
    const std::uint64_t base = frame.get(word.reg);
    const std::uint64_t at = base + static_cast<std::uint64_t>(std::int64_t{word.offset});
    const bool itself = (word.flags & WL_TAKEN_REGISTER) != 0, written = itself || at >= frame.sp();
    const std::uint64_t value = itself ? base : written ? read_value<std::uint64_t>(memory, at).value_or(0) : 0;
    key = (key ^ value) * 0x9e3779b97f4a7c15ull;
    key ^= key >> 29;
  }
  if (const auto known = answers_.find(key); known != answers_.end() && known->second.seen >= needed_)
    return known->second.number;
  if (answers_.size() >= kMaxAnswers) answers_.clear();
  const std::uint64_t now = monotonic_ns();
  const std::uint64_t number = function_number(**method, address, frame, memory);
  answers_[key] = {number, now};
  return number;
}

std::uint64_t RuntimeCode::function_number(const Method& method, std::uint64_t address, const Registers& frame,
                                           const Memory& memory) {
  const auto found = runtime_->frame_function(method, address, frame, memory);
  if (!found) return 0;
  const auto known = frame_functions_.find(*found);
  if (known != frame_functions_.end()) return known->second;
  sources::NamedFunction name = runtime_->name_of(*found);
  if (name.name.empty() || frame_names_.size() >= kMaxFrameFunctions) return 0;
  frame_names_.push_back(std::move(name));
  return frame_functions_[*found] = frame_names_.size();
}

std::shared_ptr<const Method> RuntimeCode::named_method_at(std::uint64_t address) {
  if (const auto found = method_at(address)) return *found;
  const auto after = known_.upper_bound(address);
  if (!runtime_->names_the_past() || after == known_.begin()) return nullptr;
  const std::shared_ptr<const Method>& last = std::prev(after)->second.method;
  return last->contains(address) ? last : nullptr;
}

std::uint64_t RuntimeCode::functions_at(std::uint64_t address, std::uint64_t function, std::uint64_t time,
                                        std::vector<sources::NamedFunction>& to) {
  const std::lock_guard hold(lock_);
  see(time);
  const auto method = named_method_at(address);
  if (!method) return 0;
  if (function != 0 && function <= frame_names_.size())
    to.push_back(frame_names_[function - 1]);
  else
    runtime_->functions_at(*method, address, to);
  return method->begin;
}

void RuntimeCode::note_code(const os::ProcMap& map) {
  const std::lock_guard hold(lock_);
  runtime_->note_code(map);
}

bool RuntimeCode::teaches() const {
  const std::lock_guard hold(lock_);
  return runtime_->teaches();
}

std::optional<wl_learned> RuntimeCode::lesson_of(const Method& method, const FrameRow& row, CodeAddress pc) {
  wl_learned lesson{};
  // Nothing in a runtime's code ends a stack.
  lesson.rule = table::without_end(table::project(row, runtime_->architecture(), WL_NO_XREG));
  if (lesson.rule.cfa_kind == WL_CFA_UNSUPPORTED || lesson.rule.ra_kind == WL_REG_UNDEFINED) return std::nullopt;
  // The kernel side takes what a register leads to for an interrupted instruction (wl_apply).
  if (lesson.rule.ra_kind == WL_REG_IN_REG) return std::nullopt;
  const auto words = runtime_->words_of(method, pc);
  if (!words || words->size() > WL_MOST_TAKEN) return std::nullopt;
  std::ranges::copy(*words, lesson.taken);
  lesson.taken_count = static_cast<std::uint32_t>(words->size());
  if (method.lasting) return lesson;
  const auto guard = runtime_->guard_of(method);
  if (!guard) return std::nullopt;
  lesson.guard_address = guard->address;
  lesson.guard_mask = guard->mask;
  lesson.guard_value = guard->value & guard->mask;
  return lesson;
}

// Of an interrupted instruction, where the way to a return within the method is certain. The agent's walks follow the
// same code.
std::optional<FrameRow> RuntimeCode::row_by_code(const Method& method, CodeAddress pc) {
  if (pc.is_return_address() || !method.lasting || !runtime_->is_told_by_code(method)) return std::nullopt;
  if (scratch_ == nullptr) scratch_.reset(flow::make_scratch());
  const auto read = [&](std::uint64_t at, void* to, std::size_t size) { return memory_->read(at, to, size); };
  const auto kind = [&](std::uint64_t at) {
    return method.contains(at) ? flow::CodeKind::kGenerated : flow::CodeKind::kNoCode;
  };
  const auto any = [](const FrameRow&) { return true; };
  const auto found = flow::synthesize({runtime_->architecture(), read, kind, any}, pc, *scratch_);
  if (!found || found->certainty != flow::Certainty::kCertain || found->start != flow::Start::kNone || found->by_jump ||
      found->behind_padding)
    return std::nullopt;
  return found->row;
}

std::optional<wl_learned> RuntimeCode::lesson(CodeAddress pc) {
  const std::lock_guard hold(lock_);
  const auto method = method_at(pc.lookup());
  FrameRow row;
  if (!method) return std::nullopt;
  if ((*method)->row_at(pc.lookup(), row)) return lesson_of(**method, row, pc);
  const auto found = row_by_code(**method, pc);
  auto lesson = found ? lesson_of(**method, *found, pc) : std::nullopt;
  if (lesson) lesson->rule.proof = WL_PROOF_CODE;
  return lesson;
}

std::vector<manager::PublishedCode::Lessons> RuntimeCode::lessons_around(CodeAddress pc) {
  const std::lock_guard hold(lock_);
  std::vector<Lessons> all;
  const auto method = method_at(pc.lookup());
  if (!method) return all;
  (*method)->for_each_ready_row(!pc.is_return_address(), [&](const FrameRow& row) {
    all.push_back({{row.begin, row.end},
                   lesson_of(**method, row, CodeAddress::instruction(row.begin)),
                   lesson_of(**method, row, CodeAddress::return_address(row.begin + 1))});
  });
  return all;
}

std::vector<std::uint64_t> RuntimeCode::new_functions(std::size_t most) {
  const std::lock_guard hold(lock_);
  std::vector<std::uint64_t> begins;
  for (const Runtime::NewMethod& found : runtime_->new_methods(most)) {
    const auto method = method_at(found.begin);
    const auto guard = method ? runtime_->guard_of(**method) : std::nullopt;
    // Its code was read when it was complete.
    if (method && ((*method)->lasting || (guard && guard->value == found.guard))) begins.push_back(found.begin);
  }
  return begins;
}

std::optional<wl_code_heap> RuntimeCode::heap_of(std::uint64_t address) {
  const std::lock_guard hold(lock_);
  return runtime_->heap_of(address);
}

bool RuntimeCode::may_be_outermost(std::uint64_t address) {
  const std::lock_guard hold(lock_);
  const auto method = method_at(address);
  return !method || !runtime_->is_exact() || (*method)->may_be_outermost(address);
}

wl_way RuntimeCode::way_to_stack() {
  const std::lock_guard hold(lock_);
  return runtime_->way_to_stack();
}

bool RuntimeCode::is_starting() {
  const std::lock_guard hold(lock_);
  return runtime_->is_starting();
}

std::vector<manager::PublishedCode::HoldingCode> RuntimeCode::holding_code() const {
  const std::lock_guard hold(lock_);
  return runtime_->holding_code();
}

void RuntimeCode::note_file_code(const os::ProcMap& map) {
  const std::lock_guard hold(lock_);
  runtime_->note_file_code(map);
}

std::vector<AddressRange> RuntimeCode::file_code() const {
  const std::lock_guard hold(lock_);
  return runtime_->file_code();
}

std::optional<Error> RuntimeCode::problem() const {
  const std::lock_guard hold(lock_);
  return runtime_->problem();
}

// Look-ups lock, and those of methods that were not known before allocate.
class RuntimeCode::Source final : public sources::UnwindSource {
 public:
  explicit Source(std::shared_ptr<RuntimeCode> code) : code_(std::move(code)) {}

  std::optional<Architecture> architecture() const override { return code_->runtime_->architecture(); }
  bool is_exact() const override { return code_->runtime_->is_exact(); }
  bool may_be_outermost(std::uint64_t address) const override {
    const auto method = find(address);
    return !method || (*method)->may_be_outermost(address);
  }
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    const auto method = find(address);
    return method ? (*method)->row_at(address, to) : Failure(method.error());
  }
  Expected<sources::Function> function_at(std::uint64_t address) const override {
    const auto method = find(address);
    if (!method) return Failure(method.error());
    return function_of(**method);
  }
  std::uint64_t function_start(std::uint64_t address) const override {
    const auto method = find(address);
    return method ? (*method)->begin : 0;
  }
  // Those that have been asked for.
  void for_each_function(sources::FunctionSink callback, sources::ErrorSink) const override {
    std::vector<sources::Function> functions;
    {
      const std::lock_guard hold(code_->lock_);
      for (const auto& [begin, known] : code_->known_) functions.push_back(function_of(*known.method));
    }
    for (const sources::Function& function : functions)
      if (!callback(function)) return;
  }
  void for_each_row(const sources::Function& function, sources::RowSink callback,
                    sources::ErrorSink report) const override {
    if (const auto method = find(function.begin)) (*method)->for_each_row(callback, report);
  }
  void for_each_row(sources::RowVisitor& visitor, sources::ErrorSink report) const override {
    sources::for_each_row_by_function(*this, "runtime", visitor, report);
  }

 private:
  [[nodiscard]] Expected<std::shared_ptr<const Method>> find(std::uint64_t address) const {
    const std::lock_guard hold(code_->lock_);
    return code_->method_at(address);
  }
  static sources::Function function_of(const Method& method) {
    sources::Function function;
    function.begin = function.primary = method.begin;
    function.end = method.end;
    return function;
  }

  std::shared_ptr<RuntimeCode> code_;
};

std::unique_ptr<sources::UnwindSource> RuntimeCode::make_source() {
  return std::make_unique<Source>(std::static_pointer_cast<RuntimeCode>(shared_from_this()));
}

}  // namespace windlass::runtimes
