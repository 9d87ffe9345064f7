#include "agent/sample_intake.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "agent/process_follower.h"

namespace windlass::agent {
namespace {

StackRecord record_of(const wl_event_head& head, std::uint8_t end, std::uint8_t certainty) {
  StackRecord stack;
  stack.tgid = head.tgid;
  stack.tid = head.tid;
  stack.comm = std::string_view(head.comm, strnlen(head.comm, sizeof head.comm));
  stack.end = end;
  stack.certainty = certainty;
  return stack;
}

// The address that a frame is looked up at.
std::uint64_t lookup(std::uint64_t frame) {
  return (frame & WL_FRAME_EXACT) != 0 ? frame & ~WL_FRAME_EXACT : frame - 1;
}

}  // namespace

bool SampleIntake::take(const wl_event_head& event, std::size_t size) {
  switch (event.type) {
    case WL_EVENT_STACK: on_stack(event, size); return true;
    case WL_EVENT_RAW: on_raw(event, size); return true;
    default: return false;
  }
}

const MapSet* SampleIntake::maps_of(std::uint32_t tgid) const {
  const Process* process = table_.find(tgid);
  return process != nullptr ? process->maps.get() : nullptr;
}

// A set that was published for the parent, or before code came and went, serves the kernel side; without a mapping
// here nothing says what the frame is, and whether the walk went on rightly from there.
std::uint8_t SampleIntake::mapped_end(std::uint32_t tgid, std::uint8_t end, std::span<const std::uint64_t> frames) {
  if (end != WL_END_COMPLETE) return end;
  const auto unmapped = [&] {
    const MapSet* maps = maps_of(tgid);
    return maps == nullptr ||
           std::ranges::any_of(frames, [&](std::uint64_t frame) { return maps->find(lookup(frame)) == nullptr; });
  };
  if (frames.empty() || !unmapped()) return end;
  rescan_(tgid);
  if (!unmapped()) return end;
  const MapSet* maps = maps_of(tgid);
  return maps == nullptr || maps->mappings().empty() ? WL_END_NO_PROCESS : WL_END_NO_MAPPING;
}

// True if code managers turned up, so that what is known of the frames is another now.
bool SampleIntake::meet_generated(std::uint32_t tgid, std::span<const std::uint64_t> frames) {
  const MapSet* maps = maps_of(tgid);
  if (maps == nullptr || std::ranges::none_of(frames, [&](std::uint64_t frame) {
        const Mapping* mapping = maps->find(lookup(frame));
        return mapping != nullptr && mapping->kind == MappingKind::kGenerated;
      }))
    return false;
  const std::size_t before = maps->tables().size();
  on_generated_(tgid);
  maps = maps_of(tgid);
  return maps != nullptr && maps->tables().size() != before;
}

// What the frames in code made at run time were called; empty: nothing is known of any.
std::span<const std::uint32_t> SampleIntake::name(const wl_event_head& head, std::span<const std::uint64_t> frames) {
  const MapSet* maps = maps_of(head.tgid);
  frame_names_.clear();
  if (maps == nullptr) return {};
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const Mapping* mapping = maps->find(lookup(frames[i]));
    if (mapping == nullptr || !mapping->generated()) continue;
    const std::uint32_t found = names_.find(head.tgid, *maps, *mapping, lookup(frames[i]), head.time, monotonic_ns());
    if (found == CodeNames::kUnknown) continue;
    frame_names_.resize(frames.size(), CodeNames::kUnknown);
    frame_names_[i] = found;
  }
  return frame_names_;
}

void SampleIntake::on_stack(const wl_event_head& head, std::size_t size) {
  const auto& event = reinterpret_cast<const wl_stack_event&>(head);
  if (size < sizeof event || (std::size_t{event.kernel_frames} + event.user_frames) * 8 > size - sizeof event) {
    ++malformed_;
    return;
  }
  const auto* frames = reinterpret_cast<const std::uint64_t*>(&event + 1);
  const std::span user(frames + event.kernel_frames, event.user_frames);
  (void)meet_generated(head.tgid, user);
  StackRecord stack = record_of(head, mapped_end(head.tgid, event.end, user), event.certainty);
  stack.kernel = {frames, event.kernel_frames};
  stack.user = user;
  stack.names = name(head, user);
  aggregator_.add_counted({event.hash, head.tgid, head.tid}, stack, maps_of(head.tgid));
}

void SampleIntake::on_raw(const wl_event_head& head, std::size_t size) {
  const auto event = parse_raw_event(head, size);
  if (!event) {
    ++malformed_;
    return;
  }
  const MapSet* maps = maps_of(head.tgid);
  const bool mapped = maps != nullptr && maps->find(event->sample.registers.pc().value()) != nullptr;
  if (!mapped) rescan_(head.tgid);
  std::uint8_t end = unwind(event->sample);
  if (meet_generated(head.tgid, frames_)) end = unwind(event->sample);
  if (mapped && end == WL_END_NO_MAPPING) {
    rescan_(head.tgid);
    end = unwind(event->sample);
  }
  end = mapped_end(head.tgid, end, frames_);
  ++raw_ends_[std::min<unsigned>(end, WL_END_COUNT - 1)];
  StackRecord stack = record_of(head, end, unwinder_.certainty());
  stack.kernel = event->kernel;
  stack.user = frames_;
  stack.names = name(head, frames_);
  aggregator_.add(stack, maps_of(head.tgid), 1);
}

std::uint8_t SampleIntake::unwind(const RawSample& sample) {
  frames_.clear();
  return unwinder_.unwind(sample, maps_of(sample.tgid), frames_);
}

}  // namespace windlass::agent
