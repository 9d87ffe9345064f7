#include "runtimes/coreclr/frames.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtimes/memory_reader.h"

namespace windlass::runtimes::coreclr {
namespace {

constexpr std::uint64_t kTop = ~std::uint64_t{0};  // FRAME_TOP ends a list

}  // namespace

Expected<ExplicitFrames> ExplicitFrames::make(const Descriptor& descriptor) {
  Layout layout(descriptor);
  ExplicitFrames frames;
  (void)layout.contract("Thread", "Thread contract of a version that is not known", 1, 1);
  (void)layout.contract("StackWalk", "StackWalk contract of a version that is not known", 1, 1);
  frames.store_ = layout.global("ThreadStore");
  frames.inlined_call_ = layout.global("InlinedCallFrameIdentifier");
  frames.first_thread_ = layout.field("ThreadStore", "FirstThreadLink");
  frames.thread_link_ = layout.field("Thread", "LinkNext");
  frames.thread_id_ = layout.field("Thread", "OSId");
  frames.thread_frame_ = layout.field("Thread", "Frame");
  frames.frame_next_ = layout.field("Frame", "Next");
  frames.call_sp_ = layout.field("InlinedCallFrame", "CallSiteSP");
  frames.call_pc_ = layout.field("InlinedCallFrame", "CallerReturnAddress");
  frames.call_fp_ = layout.field("InlinedCallFrame", "CalleeSavedFP");
  if (layout.error()) return Failure(*layout.error());
  constexpr std::string_view kSuffix = "Identifier";
  for (const auto& [name, value] : descriptor.globals())
    if (name.ends_with(kSuffix)) frames.kinds_.push_back({value, name.substr(0, name.size() - kSuffix.size())});
  return frames;
}

std::optional<CallSite> ExplicitFrames::call_of(const Memory& memory, std::uint64_t frame) const {
  const auto pc = read_value<std::uint64_t>(memory, frame + call_pc_);
  const auto sp = read_value<std::uint64_t>(memory, frame + call_sp_);
  const auto fp = read_value<std::uint64_t>(memory, frame + call_fp_);
  if (!pc || !sp || !fp || *pc == 0) return std::nullopt;
  return CallSite{*pc, *sp, *fp};
}

// A frame is on the stack below its caller's.
void ExplicitFrames::read_frames(const Memory& memory, std::uint64_t first, ThreadFrames& thread) const {
  std::uint64_t before = 0;
  for (std::uint64_t at = first; at != kTop;) {
    if (at == 0 || at <= before) {
      thread.error = Error{ErrorCode::kMalformed, "a list of explicit frames that does not ascend", at, before};
      return;
    }
    if (thread.frames.size() == kMaxFrames) {
      thread.error = Error{ErrorCode::kLimit, "a list of explicit frames without an end", at};
      return;
    }
    const auto identifier = read_value<std::uint64_t>(memory, at);
    const auto next = read_value<std::uint64_t>(memory, at + frame_next_);
    if (!identifier || !next) {
      thread.error = Error{ErrorCode::kUnreadable, "an explicit frame cannot be read", at};
      return;
    }
    ExplicitFrame frame{at, *identifier, {}, {}};
    const auto kind = std::ranges::find(kinds_, *identifier, &Kind::identifier);
    if (kind != kinds_.end()) frame.kind = kind->name;
    if (*identifier == inlined_call_) frame.call = call_of(memory, at);
    thread.frames.push_back(std::move(frame));
    before = at;
    at = *next;
  }
}

Expected<std::vector<ThreadFrames>> ExplicitFrames::read(const Memory& memory) const {
  std::vector<ThreadFrames> threads;
  const auto store = read_value<std::uint64_t>(memory, store_);
  auto link = store ? read_value<std::uint64_t>(memory, *store + first_thread_) : std::nullopt;
  for (; link && *link != 0; link = read_value<std::uint64_t>(memory, *link)) {
    if (threads.size() == kMaxThreads) return fail(ErrorCode::kLimit, "a list of threads without an end", *link);
    ThreadFrames thread;
    thread.address = *link - thread_link_;
    const auto id = read_value<std::uint64_t>(memory, thread.address + thread_id_);
    const auto first = read_value<std::uint64_t>(memory, thread.address + thread_frame_);
    if (!id || !first) return fail(ErrorCode::kUnreadable, "a thread cannot be read", thread.address);
    thread.id = *id;
    read_frames(memory, *first, thread);
    threads.push_back(std::move(thread));
  }
  if (!link) return fail(ErrorCode::kUnreadable, "the list of threads cannot be read", store_);
  return threads;
}

}  // namespace windlass::runtimes::coreclr
