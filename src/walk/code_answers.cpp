#include "walk/code_answers.h"

#include <atomic>

#include "base/shared_cache.h"
#include "walk/inside.h"

namespace windlass::walk {
namespace {

struct PcKey {
  std::uint64_t module;  // Module::id(): of a code manager's, code of which it does not know may change any time
  std::uint64_t pc;      // KeptRow::key_of()
};
struct CallKey {
  PcKey callee, caller;
};
constinit SharedCache<PcKey, KeptAnswer, 10> answers;
constinit SharedCache<CallKey, flow::CallSite, 10> sites;
constinit SharedCache<PcKey, bool, 8> halts;

// A refusal may have been due to the stack at hand, on which nothing looked like a caller. So every 16th refusal is not
// believed, and the code is followed once more.
constexpr std::uint32_t kBelieved = 16;
std::atomic<std::uint32_t> refusals;

PcKey key_of(const Module* module, CodeAddress pc) {
  return {module != nullptr ? module->id() : 0, KeptRow::key_of(pc)};
}

bool is_limited(const StepContext& context) { return context.options.max_followed != flow::Budget::kUnlimited; }

// Does it lead to a caller on this stack?
bool can_be_right(const StepContext& context, const flow::Synthesis& found) {
  if (found.start != flow::Start::kNone) return true;
  return with_code(context, [&](const flow::CodeSource& source) { return source.plausible(found.row); });
}

}  // namespace

std::optional<KeptAnswer> KeptAnswer::of(const Expected<flow::Synthesis>& found) {
  KeptAnswer answer;
  if (!found) {
    answer.is_refused_ = true;
    answer.refused_ = found.error().code;
    return answer;
  }
  const FrameRow& row = found->row;
  if (row.registers.size() > kMostRegisters) return std::nullopt;
  answer.expressions_ = row.expressions;
  answer.cfa_ = row.cfa;
  answer.return_address_ = row.return_address;
  for (const RegisterEntry entry : row.registers) {
    answer.registers_[answer.count_] = entry.reg;
    answer.rules_[answer.count_++] = entry.rule;
  }
  answer.signal_frame_ = row.signal_frame;
  answer.return_signed_ = row.return_signed;
  answer.certainty_ = found->certainty;
  answer.start_ = found->start;
  answer.by_jump_ = found->by_jump;
  answer.addresses_frame_ = found->addresses_frame;
  answer.behind_padding_ = found->behind_padding;
  answer.keeps_frame_record_ = found->keeps_frame_record;
  return answer;
}

Expected<flow::Synthesis> KeptAnswer::at(CodeAddress pc) const {
  if (is_refused_) return fail(refused_, "following this code led nowhere before", pc.value());
  flow::Synthesis found;
  found.row.begin = pc.value();
  found.row.end = pc.value() + 1;
  found.row.cfa = cfa_;
  found.row.expressions = expressions_;
  found.row.return_address = return_address_;
  for (unsigned i = 0; i < count_; ++i) found.row.registers.append(registers_[i], rules_[i]);
  found.row.signal_frame = signal_frame_;
  found.row.return_signed = return_signed_;
  found.certainty = certainty_;
  found.start = start_;
  found.by_jump = by_jump_;
  found.addresses_frame = addresses_frame_;
  found.behind_padding = behind_padding_;
  found.keeps_frame_record = keeps_frame_record_;
  return found;
}

Expected<flow::Synthesis> synthesize(const StepContext& context) {
  const CodeAddress pc = context.frame.pc();
  const PcKey key = key_of(context.module, pc);
  const bool keeps = context.space.is_own_process() && key.module != 0;
  if (KeptAnswer answer; keeps && is_limited(context) && answers.find(key, answer)) {
    const auto kept = answer.at(pc);
    if (kept ? can_be_right(context, *kept)
             : refusals.fetch_add(1, std::memory_order_relaxed) % kBelieved != kBelieved - 1)
      return kept;
  }
  // That a walk had used up most of its budget before it came here says nothing about this code.
  const bool has_time = flow::budget_of(*context.scratch.synthesis).left() >= kMostFollowedInHandler / 4 * 3;
  auto found = follow_code(context);
  const bool whole = found || found.error().code != ErrorCode::kLimit;
  if (keeps && (whole || has_time))
    if (const auto answer = KeptAnswer::of(found)) answers.keep(key, *answer);
  return found;
}

bool goes_to_a_halt(const StepContext& context, CodeAddress pc) {
  const PcKey key = key_of(module_at(context.space, pc.lookup()), pc);
  const bool keeps = context.space.is_own_process() && key.module != 0;
  bool answer = false;
  if (keeps && is_limited(context) && halts.find(key, answer)) return answer;
  const auto found = follow_code_at(context, pc);
  answer = found && found->start == flow::Start::kHalts;
  if (keeps && (found || found.error().code != ErrorCode::kLimit)) halts.keep(key, answer);
  return answer;
}

flow::CallSite call_site(const StepContext& context, CodeAddress caller, FrameRow& way_in) {
  const CallKey key{key_of(context.module, context.frame.pc()),
                    key_of(module_at(context.space, caller.lookup()), caller)};
  const bool keeps = context.space.is_own_process() && key.callee.module != 0 && key.caller.module != 0;
  flow::CallSite site{};
  if (keeps && is_limited(context) && sites.find(key, site)) return site;
  site = followed_call(context, caller, way_in);
  const bool whole = !flow::budget_of(*context.scratch.synthesis).exhausted();
  if (keeps && whole && !flow::has_way_in(site)) sites.keep(key, site);
  return site;
}

}  // namespace windlass::walk
