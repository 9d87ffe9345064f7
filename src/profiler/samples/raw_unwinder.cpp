#include "profiler/samples/raw_unwinder.h"

#include <algorithm>
#include <cstddef>

#include "base/monotonic.h"
#include "lookup/sources/stack_end.h"
#include "lookup/table/project.h"
#include "profiler/samples/user_frame.h"
#include "walk/steady_step.h"

namespace windlass::profiler {

void RawUnwinder::set_budget(WorkBudget& budget) {
  budget_ = &budget;
  memo_.set_limit(budget);
}

const AddressSpace& RawUnwinder::space_of(const RawSample& sample, const MapSet& maps) {
  // Modules refer to what the registry has dropped.
  const bool evicted = evictions_ != registry_.evictions();
  if (evicted || processes_.size() >= kMaxProcesses) processes_.clear();
  if (evicted) memo_.clear();
  evictions_ = registry_.evictions();
  memory_.show(sample);
  const Architecture architecture = sample.registers.architecture();
  const auto make = [&] {
    return processes_.try_emplace(sample.tgid, sample.tgid, architecture, memory_, code_mask_, memo_).first;
  };
  auto process = make();
  if (process->second.space().architecture() != architecture) {
    processes_.erase(process);
    process = make();
  }
  process->second.show(maps, sample.time, registry_);
  // Functions with a uretprobe return to where [uprobes] begins. A return address is looked up by the byte before it.
  process->second.cover(sample.probed_pc == 0 ? 0 : sample.probed_pc - 1);
  return process->second.space();
}

UnwoundStack RawUnwinder::unwind(const RawSample& sample, const MapSet* maps) {
  UnwoundStack stack;
  const std::uint64_t pc = sample.registers.pc().value();
  const bool known = maps != nullptr && !maps->mappings().empty();
  if (known && pc >> 63 != 0) {
    stack.end = WL_END_NO_MAPPING;
  } else if (!known || (budget_ != nullptr && !budget_->may_walk())) {
    stack.end = known ? WL_END_NO_TIME : WL_END_NO_PROCESS;
    stack.frames.push_back(pc | WL_FRAME_EXACT);
  } else {
    stack.end = walk(sample, *maps, stack);
  }
  return stack;
}

namespace {

// A walker that stands where the kernel has put its own address in place of a return address goes on from that.
class ProbedReturns {
 public:
  explicit ProbedReturns(const RawSample& sample) : sample_(sample) {}

  // `worst` gets the certainty that the walker forgets.
  void replace(StackWalker& walker, FrameCertainty& worst) {
    const Frame& frame = walker.frame();
    if (sample_.probed_pc == 0 || frame.pc().value() != sample_.probed_pc) return;
    for (std::size_t i = next_; i < sample_.probed_returns.size(); ++i) {
      const auto& known = sample_.probed_returns[i];
      if (known.address == 0 || (frame.registers.has_sp() && frame.sp() != known.sp)) continue;
      next_ = i + 1;
      worst = std::max(worst, walker.certainty());
      Registers registers = frame.registers;
      registers.set_pc(CodeAddress::return_address(known.address));
      return walker.restart(registers);
    }
  }

 private:
  const RawSample& sample_;
  std::size_t next_ = 0;
};

std::uint8_t end_of(const StackWalker& walker, FrameCertainty certainty) {
  const std::uint8_t end = sample_end(walker.end_reason(), walker.error());
  if (end != WL_END_COMPLETE && end != WL_END_CHAINED) return end;
  if (certainty == FrameCertainty::kGuessed) return WL_END_GUESSED;
  return certainty == FrameCertainty::kChained ? std::uint8_t{WL_END_CHAINED} : end;
}

}  // namespace

// Returns how the stack ended.
std::uint8_t RawUnwinder::walk(const RawSample& sample, const MapSet& maps, UnwoundStack& to) {
  static_assert(static_cast<int>(FrameCertainty::kDescribed) == WL_DESCRIBED &&
                static_cast<int>(FrameCertainty::kChained) == WL_CHAINED &&
                static_cast<int>(FrameCertainty::kGuessed) == WL_GUESSED);
  memo_.start_walk(sample.time, monotonic_ns());
  checked_ = &to.checked;
  StackWalker walker(space_of(sample, maps), sample.registers);
  ProbedReturns probed(sample);
  FrameCertainty worst = FrameCertainty::kDescribed;
  for (std::size_t depth = 0; depth < kMaxFrames; ++depth) {
    const CodeAddress pc = walker.frame().pc();
    to.frames.push_back(pc.is_return_address() ? pc.value() : pc.value() | WL_FRAME_EXACT);
    if (const std::uint64_t function = walker.frame().function; function != 0) {
      to.functions.resize(to.frames.size());
      to.functions.back() = function;
    }
    const FrameCertainty certainty = std::max(worst, walker.certainty());
    to.certainty = static_cast<std::uint8_t>(certainty);
    const bool found = walker.step();
    // What else was tried instead of following code, if anything, is worth less.
    if (memo_.was_refused()) return WL_END_NO_TIME;
    if (!found) return end_of(walker, certainty);
    probed.replace(walker, worst);
  }
  return WL_END_DEPTH;
}

// Is the code of the step's function still there?
bool RawUnwinder::has_code_of(const walk::SteadyStep& step) const {
  const std::vector<std::byte>& code = step.function->code;
  std::vector<std::byte> now(code.size());
  return !code.empty() && memory_.read_code(step.function->range.begin + step.function_bias, now.data(), now.size()) &&
         now == code;
}

void RawUnwinder::take(const walk::SteadyStep& step) {
  CheckedStep made{step.pc.is_return_address() ? step.pc.value() : step.pc.value() | WL_FRAME_EXACT,
                   step.caller,
                   {},
                   step.function,
                   step.function_bias};
  wl_steady& to = made.step;
  if (step.caller == 0)
    to.rule.ra_kind = WL_REG_UNDEFINED;
  else
    to.rule = table::without_end(table::project(step.row, Architecture::kX86_64, WL_NO_XREG));
  to.from_sp = step.from_sp;
  to.from_fp = step.from_fp;
  to.word = static_cast<std::uint32_t>(step.word);
  to.word_at = step.word_at;
  to.certainty = static_cast<std::uint32_t>(step.certainty);
  __u64 code[WL_GUARD_WORDS], call = 0;
  if (step.code_changes) {
    if (!memory_.read_code(step.pc.value() - WL_GUARD_BEFORE, code, sizeof code)) return;
    to.guard = wl_code_guard(code);
    if (step.function != nullptr && !has_code_of(step)) made.function = nullptr;
  } else if (step.caller != 0 && step.certainty == FrameCertainty::kProved) {
    to.callers[0] = WL_ANY_CALLER;
  }
  if (step.caller_changes && !memory_.read_code(step.caller - sizeof call, &call, sizeof call)) return;
  if (step.caller != 0) made.caller = wl_caller_word(step.caller, call, to.guard);
  checked_->push_back(made);
}

void RawUnwinder::keep_only(const std::function<bool(std::uint32_t tgid)>& known) {
  std::erase_if(processes_, [&](const auto& process) { return !known(process.first); });
}

bool RawUnwinder::proves_end(std::uint64_t frame, const MapSet& maps) {
  const std::uint64_t address = lookup_address(frame);
  const Mapping* mapping = maps.find(address);
  CodeFile* file = mapping != nullptr && !mapping->generated() ? registry_.find(mapping->module) : nullptr;
  if (file == nullptr) return true;
  const std::uint64_t in_file = ((frame & ~WL_FRAME_EXACT) - mapping->bias) | (frame & WL_FRAME_EXACT);
  const std::pair place{mapping->module, in_file};
  // Nearly all stacks end in a few places.
  if (const auto known = ends_.find(place); known != ends_.end()) return known->second;
  if (ends_.size() >= kMaxEnds) ends_.clear();
  const bool proven = sources::end_proof(registry_.source(*file), code_address(in_file)) == sources::EndProof::kProven;
  ends_.emplace(place, proven);
  return proven;
}

}  // namespace windlass::profiler
