#include "agent/sample_intake.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace windlass::agent {
namespace {

StackRecord record_of(const wl_event_head& head, std::uint8_t end) {
  StackRecord stack;
  stack.tgid = head.tgid;
  stack.tid = head.tid;
  stack.comm = std::string_view(head.comm, strnlen(head.comm, sizeof head.comm));
  stack.end = end;
  return stack;
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

void SampleIntake::on_stack(const wl_event_head& head, std::size_t size) {
  const auto& event = reinterpret_cast<const wl_stack_event&>(head);
  if (size < sizeof event || (std::size_t{event.kernel_frames} + event.user_frames) * 8 > size - sizeof event) {
    ++malformed_;
    return;
  }
  const auto* frames = reinterpret_cast<const std::uint64_t*>(&event + 1);
  StackRecord stack = record_of(head, event.end);
  stack.kernel = {frames, event.kernel_frames};
  stack.user = {frames + event.kernel_frames, event.user_frames};
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
  if (mapped && end == WL_END_NO_MAPPING) {
    rescan_(head.tgid);
    end = unwind(event->sample);
  }
  ++raw_ends_[std::min<unsigned>(end, WL_END_COUNT - 1)];
  StackRecord stack = record_of(head, end);
  stack.kernel = event->kernel;
  stack.user = frames_;
  aggregator_.add(stack, maps_of(head.tgid), 1);
}

std::uint8_t SampleIntake::unwind(const RawSample& sample) {
  frames_.clear();
  return unwinder_.unwind(sample, maps_of(sample.tgid), frames_);
}

}  // namespace windlass::agent
