#include "profiler/samples/raw_unwinder.h"

#include "lookup/sources/stack_end.h"
#include "profiler/samples/user_frame.h"

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

// Returns how the stack ended.
std::uint8_t RawUnwinder::walk(const RawSample& sample, const MapSet& maps, UnwoundStack& to) {
  static_assert(static_cast<int>(FrameCertainty::kDescribed) == WL_DESCRIBED &&
                static_cast<int>(FrameCertainty::kChained) == WL_CHAINED &&
                static_cast<int>(FrameCertainty::kGuessed) == WL_GUESSED);
  memo_.start_walk(sample.time);
  StackWalker walker(space_of(sample, maps), sample.registers);
  for (std::size_t depth = 0; depth < kMaxFrames; ++depth) {
    const CodeAddress pc = walker.frame().pc();
    to.frames.push_back(pc.is_return_address() ? pc.value() : pc.value() | WL_FRAME_EXACT);
    if (const std::uint64_t function = walker.frame().function; function != 0) {
      to.functions.resize(to.frames.size());
      to.functions.back() = function;
    }
    to.certainty = static_cast<std::uint8_t>(walker.certainty());
    const bool found = walker.step();
    // What else was tried instead of following code, if anything, is worth less.
    if (memo_.was_refused()) return WL_END_NO_TIME;
    if (!found) return sample_end(walker.end_reason(), walker.error());
  }
  return WL_END_DEPTH;
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
