#include "profiler/samples/sample_intake.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/monotonic.h"
#include "os/readers.h"
#include "profiler/samples/mix.h"
#include "profiler/samples/user_frame.h"
#include "walk/progress.h"
#include "windlass_allocation_layout.h"

namespace windlass::profiler {
namespace {

// A wait's event is its begin.
bool counts_at_once(const wl_event_head& head) { return head.reason == 0; }

// What a sample counts for; nothing where that is told later.
std::uint64_t count_of(const wl_event_head& head) { return counts_at_once(head) ? std::uint64_t{1} + head.extra : 0; }

// Of a raw sample: that of a wait is counted under it later.
std::optional<wl_stack_key> key_of(const WalkedSample& sample) {
  if (counts_at_once(sample.head)) return std::nullopt;
  return wl_stack_key{sample.hash, sample.head.tgid, sample.head.tid};
}

}  // namespace

bool SampleIntake::take(const wl_event_head& event, std::size_t size) {
  switch (event.type) {
    case WL_EVENT_STACK: on_stack(event, size); return true;
    case WL_EVENT_RAW: on_raw(event, size); return true;
    case WL_EVENT_LABELS:
      if (thread_labels_ != nullptr && !thread_labels_->take(event, size)) ++malformed_;
      return true;
    case WL_EVENT_WAKER: on_waker(event, size); return true;
    default: return false;
  }
}

StackRecord SampleIntake::record_of(const wl_event_head& head, std::uint8_t end, std::uint8_t certainty) {
  StackRecord stack;
  stack.tgid = head.tgid;
  stack.tid = head.tid;
  stack.comm = std::string_view(head.comm, strnlen(head.comm, sizeof head.comm));
  stack.event = head.event;
  stack.reason = head.reason != WL_NO_WAIT ? head.reason : std::uint16_t{0};
  stack.labels = moment_ != nullptr ? moment_->labels : labels_of(head);
  stack.end = end;
  stack.certainty = certainty;
  return stack;
}

std::uint32_t SampleIntake::labels_of(const wl_event_head& head) const {
  return labels_ != nullptr ? thread_labels_->of(labels_->of(head.tgid), head.labels, *labels_) : 0;
}

const MapSet* SampleIntake::maps_of(std::uint32_t tgid) const {
  if (moment_ != nullptr) return moment_->maps.get();
  const Process* process = table_.find(tgid);
  return process != nullptr ? process->maps.get() : nullptr;
}

void SampleIntake::rescan(std::uint32_t tgid) {
  const Process* process = table_.find(tgid);
  const bool as_it_was = moment_ == nullptr || (process != nullptr && process->maps.get() == moment_->maps.get());
  if (as_it_was) rescan_(tgid);
  if (moment_ == nullptr) return;
  process = table_.find(tgid);
  if (process != nullptr && process->epoch == moment_->epoch) moment_->maps = process->maps.share();
}

// The kernel side may use a set that was published for the parent, or before code came and went. Without a mapping
// here, nothing says which code the frame is in, or whether the walk went on rightly from there.
std::uint8_t SampleIntake::mapped_end(std::uint32_t tgid, std::uint8_t end, std::span<const std::uint64_t> frames) {
  if (end != WL_END_COMPLETE) return end;
  const auto unmapped = [&] {
    const MapSet* maps = maps_of(tgid);
    return maps == nullptr || std::ranges::any_of(frames, [&](std::uint64_t frame) {
             const bool null_page = is_exact(frame) && walk::is_null_page(lookup_address(frame));
             return !null_page && maps->find(lookup_address(frame)) == nullptr;
           });
  };
  if (frames.empty() || !unmapped()) return end;
  rescan(tgid);
  if (!unmapped()) return end;
  const MapSet* maps = maps_of(tgid);
  return maps == nullptr || maps->mappings().empty() ? WL_END_NO_PROCESS : WL_END_NO_MAPPING;
}

// How a stack of the kernel side's ended, as far as that is proven.
std::uint8_t SampleIntake::proven_end(std::uint32_t tgid, std::uint8_t end, std::span<const std::uint64_t> frames) {
  end = mapped_end(tgid, end, frames);
  const MapSet* maps = maps_of(tgid);
  if (end != WL_END_COMPLETE || frames.empty() || maps == nullptr) return end;
  return unwinder_.proves_end(frames.back(), *maps) ? end : std::uint8_t{WL_END_GUESSED};
}

// A walk without the memory or the file that it needs breaks off for one of many reasons. This is the cause.
std::uint8_t SampleIntake::silent_end(std::uint32_t tgid, std::uint8_t end,
                                      std::span<const std::uint64_t> frames) const {
  constexpr std::uint8_t kOfItself[] = {WL_END_COMPLETE, WL_END_CHAINED, WL_END_KERNEL_ONLY,
                                        WL_END_DEPTH,    WL_END_NO_TIME, WL_END_OTHER_MACHINE};
  if (std::ranges::find(kOfItself, end) != std::end(kOfItself)) return end;
  const MapSet* maps = maps_of(tgid);
  const auto is_silent = [&](std::uint64_t frame) {
    const Mapping* mapping = maps->find(lookup_address(frame));
    return mapping != nullptr && mapping->silent;
  };
  const bool silent =
      os::is_silent(static_cast<pid_t>(tgid)) || (maps != nullptr && std::ranges::any_of(frames, is_silent));
  return silent ? std::uint8_t{WL_END_SILENT} : end;
}

// True if somebody turned up who publishes code, so that what is known of the frames is another now.
bool SampleIntake::meet_generated(std::uint32_t tgid, std::span<const std::uint64_t> frames) {
  const MapSet* maps = maps_of(tgid);
  if (maps == nullptr || std::ranges::none_of(frames, [&](std::uint64_t frame) {
        const Mapping* mapping = maps->find(lookup_address(frame));
        return mapping != nullptr && mapping->generated() && !mapping->published();
      }))
    return false;
  const std::size_t before = maps->published().size();
  on_generated_(tgid);
  maps = maps_of(tgid);
  return maps != nullptr && maps->published().size() != before;
}

// Stacks of the kernel side have frames of runtimes whose code is what it was when it was taught. So are their names.
std::uint32_t SampleIntake::name_late(const wl_event_head& head, std::uint64_t epoch, std::uint64_t frame,
                                      const CodePlace& place, std::uint64_t now) {
  const auto* code = place.maps.published_of(place.mapping);
  if (code == nullptr || !(*code)->teaches()) return names_.find_late(head.tgid, place, head.time, now);
  auto& named = named_.at(head.time, teacher_.changes());
  const std::uint64_t key = mix(mix(mix(epoch, head.tgid), frame), place.function);
  if (const auto known = named.find(key); known != named.end()) return known->second;
  const std::uint32_t found = names_.find_late(head.tgid, place, head.time, now);
  if (found != CodeNames::kUnknown) named.emplace(key, found);
  return found;
}

// What the frames in code made at run time were called; empty: nothing is known of any. `late`: what may still be said
// counts, too, once it is.
std::span<const std::uint32_t> SampleIntake::name(const wl_event_head& head, const MapSet* maps, const Named& by,
                                                  bool late) {
  const auto [frames, functions, interpreted, epoch] = by;
  frame_names_.clear();
  if (maps == nullptr) return {};
  interpreted_names_.find(head.tgid, *maps, frames, interpreted, names_, frame_names_);
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const std::uint64_t address = lookup_address(frames[i]);
    const Mapping* mapping = maps->find(address);
    if (mapping == nullptr || !(mapping->generated() || mapping->published())) continue;
    const std::uint64_t now = monotonic_ns();
    const CodePlace place{*maps, *mapping, address, i < functions.size() ? functions[i] : 0};
    const std::uint32_t found =
        !late ? names_.find(head.tgid, place, head.time, now) : name_late(head, epoch, frames[i], place, now);
    if (found == CodeNames::kUnknown) continue;
    frame_names_.resize(frames.size(), CodeNames::kUnknown);
    frame_names_[i] = found;
  }
  return frame_names_;
}

void SampleIntake::judge_exits(const MapSet& maps, StackRecord& stack) const {
  for (std::size_t i = 0; i + 1 < stack.user.size(); ++i) {
    const std::uint64_t address = lookup_address(stack.user[i]), next = lookup_address(stack.user[i + 1]);
    const Mapping *from = maps.find(address), *to = maps.find(next);
    const auto* code = from != nullptr ? maps.published_of(*from) : nullptr;
    if (code == nullptr || to == nullptr || to->generated() || to->published() || is_exact(stack.user[i + 1])) continue;
    if ((*code)->may_be_outermost(address)) continue;
    stack.certainty = WL_GUESSED;
    if (stack.end == WL_END_COMPLETE) stack.end = WL_END_GUESSED;
  }
}

void SampleIntake::on_stack(const wl_event_head& head, std::size_t size) {
  const auto& event = reinterpret_cast<const wl_stack_event&>(head);
  read_stack(head, size, [&](const StackRecord& stack, const MapSet*) {
    add(head, stack, shared_maps_of(head.tgid), wl_stack_key{event.hash, head.tgid, head.tid});
  });
}

void SampleIntake::read_stack(const wl_event_head& head, std::size_t size, const StackUse& use) {
  const auto& event = reinterpret_cast<const wl_stack_event&>(head);
  const std::size_t native = size < sizeof event ? 0 : std::size_t{event.kernel_frames} + event.user_frames;
  if (size < sizeof event || native * 8 > size - sizeof event ||
      event.interpreted_frames > (size - sizeof event - native * 8) / sizeof(wl_interpreted_frame) ||
      event.taken_words * 8ULL >
          size - sizeof event - native * 8 - event.interpreted_frames * sizeof(wl_interpreted_frame)) {
    ++malformed_;
    return;
  }
  const auto* frames = reinterpret_cast<const std::uint64_t*>(&event + 1);
  const std::span kernel(frames, event.kernel_frames);
  const bool half_written = event.user_frames != 0 && unjudged_.can_judge(kernel) && unjudged_.is_half_written(kernel);
  const std::span user(frames + event.kernel_frames, half_written ? 1 : event.user_frames);
  const std::span interpreted(reinterpret_cast<const wl_interpreted_frame*>(frames + native), event.interpreted_frames);
  (void)meet_generated(head.tgid, user);
  const auto found_end = [&] { return silent_end(head.tgid, proven_end(head.tgid, event.end, user), user); };
  const std::uint8_t end = half_written ? std::uint8_t{WL_END_REGISTER_LOST} : found_end();
  StackRecord stack = record_of(head, end, half_written ? std::uint8_t{WL_DESCRIBED} : std::uint8_t{event.certainty});
  stack.kernel = kernel;
  stack.user = user;
  std::vector<std::uint64_t> functions;
  if (const MapSet* maps = maps_of(head.tgid); maps != nullptr && !half_written && !maps->published().empty()) {
    judge_exits(*maps, stack);
    const std::span words(frames + native + 2 * std::size_t{event.interpreted_frames}, event.taken_words);
    functions = taken_words_.functions({head.time, user, words}, {head.tgid, event.epoch, *maps}, teacher_);
  }
  const Named by{user, functions, stack.end == WL_END_COMPLETE ? interpreted : decltype(interpreted)(), event.epoch};
  stack.names = name(head, maps_of(head.tgid), by, true);  // counted by the kernel side: it cannot wait
  use(stack, maps_of(head.tgid));
}

void SampleIntake::on_waker(const wl_event_head& head, std::size_t size) {
  if (size < sizeof(wl_waker_event))
    ++malformed_;
  else
    aggregator_.add_waker(reinterpret_cast<const wl_waker_event&>(head));
}

void SampleIntake::on_raw(const wl_event_head& head, std::size_t size) {
  auto event = parse_raw_event(head, size);
  if (!event) {
    ++malformed_;
    return;
  }
  if (budget_ != nullptr) budget_->begin_sample();
  unwind_and_add(head, *event);
  if (budget_ != nullptr) budget_->end_sample();
}

bool SampleIntake::postpone(const wl_event_head& head, std::size_t size) {
  if (head.type != WL_EVENT_STACK && head.type != WL_EVENT_RAW) return false;
  const Process* process = table_.find(head.tgid);
  if (process == nullptr || process->maps->mappings().empty() || postponed_.full()) return false;
  const auto may_change = [](const Mapping& it) {
    return it.published() || (it.generated() && it.begin >> 63 == 0);  // not vsyscall's page
  };
  if (std::ranges::any_of(process->maps->mappings(), may_change)) return false;
  postponed_.push(head, size, {process->epoch, process->maps.share(), labels_of(head)});
  return true;
}

bool SampleIntake::work_off(const std::function<bool()>& goes_on) {
  bool on = true;
  while (on && !postponed_.empty()) {
    postponed_.take_first([this](const wl_event_head& head, std::size_t size, SampleMoment& moment) {
      moment_ = &moment;
      (void)take(head, size);
      moment_ = nullptr;
    });
    on = goes_on();
  }
  return on;
}

void SampleIntake::unwind_and_add(const wl_event_head& head, RawEvent& event) {
  const bool is_judged = unjudged_.can_judge(event.kernel);
  if (is_judged && unjudged_.is_half_written(event.kernel)) {
    const std::uint64_t pc = event.sample.registers.pc().value();
    add_raw(head, event,
            {.end = WL_END_REGISTER_LOST, .frames = {pc | WL_FRAME_EXACT}, .functions = {}, .checked = {}});
    return;
  }
  const MapSet* maps = maps_of(head.tgid);
  const bool mapped = maps != nullptr && maps->find(event.sample.registers.pc().value()) != nullptr;
  if (!mapped) rescan(head.tgid);
  const auto unwind = [&] { return unwinder_.unwind(event.sample, maps_of(head.tgid)); };
  UnwoundStack stack = unwind();
  if (meet_generated(head.tgid, stack.frames)) stack = unwind();
  if (mapped && stack.end == WL_END_NO_MAPPING) {
    rescan(head.tgid);
    stack = unwind();
  }
  stack.end = silent_end(head.tgid, mapped_end(head.tgid, stack.end, stack.frames), stack.frames);
  maps = maps_of(head.tgid);
  if (maps != nullptr && event.space != 0 && is_judged) {
    teacher_.teach({head.tgid, event.sample.epoch, *maps}, stack.frames, head.time);
    teacher_.teach({head.tgid, event.sample.epoch, *maps}, stack.checked, head.time);
  }
  if (maps != nullptr && !maps->published().empty()) last_asked_ = head.time;
  add_raw(head, event, std::move(stack));
}

void SampleIntake::add_raw(const wl_event_head& head, RawEvent& event, UnwoundStack stack) {
  raw_ends_[std::min<unsigned>(stack.end, WL_END_COUNT - 1)] += std::uint64_t{1} + head.extra;
  WalkedSample sample{head,
                      stack.end,
                      stack.certainty,
                      std::move(event.kernel),
                      std::move(stack.frames),
                      std::move(stack.functions),
                      std::move(event.interpreted),
                      shared_maps_of(head.tgid),
                      event.hash};
  if (stack.end != WL_END_COMPLETE) sample.interpreted.clear();
  if (sample.maps == nullptr || !LateSamples::has_to_wait(*sample.maps, sample.user, head.time, ended(head.tgid))) {
    add(sample, false);
  } else {
    late_.push(std::move(sample));
    late_.take_excess([this](const WalkedSample& early) { add(early, true); });
  }
}

// ---- samples that wait for names ------------------------------------------------------------------------------------

std::uint64_t SampleIntake::ended(std::uint32_t tgid) const {
  const Process* process = table_.find(tgid);
  return process != nullptr ? process->exit_time : 0;
}

std::shared_ptr<const MapSet> SampleIntake::shared_maps_of(std::uint32_t tgid) const {
  if (moment_ != nullptr) return moment_->maps;
  const Process* process = table_.find(tgid);
  return process != nullptr ? process->maps.share() : nullptr;
}

StackRecord SampleIntake::named_record(const WalkedSample& sample, bool late) {
  StackRecord stack = record_of(sample.head, sample.end, sample.certainty);
  stack.kernel = sample.kernel;
  stack.user = sample.user;
  stack.names = name(sample.head, sample.maps.get(), {sample.user, sample.functions, sample.interpreted}, late);
  return stack;
}

void SampleIntake::add(const WalkedSample& sample, bool late) {
  add(sample.head, named_record(sample, late), sample.maps, key_of(sample));
}

void SampleIntake::add(const wl_event_head& head, const StackRecord& stack, const std::shared_ptr<const MapSet>& maps,
                       std::optional<wl_stack_key> key) {
  if (unjudged_.can_judge(stack.kernel)) {
    (void)add_judged(head, stack, maps.get(), key);
    return;
  }
  unjudged_.push(head, stack, maps, key);
  if (unjudged_.is_full()) judge();
}

std::size_t SampleIntake::add_judged(const wl_event_head& head, StackRecord stack, const MapSet* maps,
                                     std::optional<wl_stack_key> key) {
  if (unjudged_.is_half_written(stack.kernel)) cut_to_innermost(stack);
  const std::size_t sample =
      key ? add_counted(*key, stack, maps, count_of(head)) : aggregator_.add(stack, maps, count_of(head));
  keep_time(head, sample);
  return sample;
}

std::size_t SampleIntake::add_counted(const wl_stack_key& key, StackRecord stack, const MapSet* maps,
                                      std::uint64_t count) {
  const std::size_t sample = aggregator_.add_counted(key, stack, maps, count);
  if (in_use_ == 0 || stack.event != allocated_) return sample;
  const wl_stack_key in_use{key.hash ^ WL_IN_USE_BIT, key.tgid, key.tid};
  stack.event = in_use_;
  (void)aggregator_.add_counted(in_use, stack, maps, 0);
  in_use_keys_.push_back(in_use);
  return sample;
}

// The time of a wait is told when it has ended.
void SampleIntake::keep_time(const wl_event_head& head, std::size_t sample) {
  if (times_ == nullptr) return;
  for (std::uint64_t tick = 0; tick < count_of(head); ++tick)
    times_->add(static_cast<std::uint32_t>(sample), head.time - tick * tick_ns_);
}

void SampleIntake::judge() {
  unjudged_.take([this](const wl_event_head& head, const StackRecord& stack, const MapSet* maps,
                        std::optional<wl_stack_key> key) { (void)add_judged(head, stack, maps, key); });
}

void SampleIntake::settle() {
  if (unjudged_.can_judge_all()) judge();
  late_.take_settled([this](std::uint32_t tgid) { return ended(tgid); },
                     [this](const WalkedSample& sample) { add(sample, false); });
}

void SampleIntake::settle_all() {
  const std::uint64_t now = monotonic_ns();
  late_.take_settled([now](std::uint32_t) { return now; }, [this](const WalkedSample& sample) { add(sample, false); });
  judge();
}

void SampleIntake::with_waiting(const std::function<void()>& use) {
  judge();
  std::vector<std::pair<std::size_t, std::uint64_t>> added;  // and how much
  if (times_ != nullptr) times_->lend();
  late_.for_each([&](const WalkedSample& sample) {
    const std::size_t number = add_judged(sample.head, named_record(sample, false), sample.maps.get(), key_of(sample));
    added.emplace_back(number, count_of(sample.head));
  });
  use();
  if (times_ != nullptr) times_->take_back();
  for (const auto& [sample, count] : added) aggregator_.take_back(sample, count);
}

void SampleIntake::for_each_waiting(const std::function<void(const MapSet& maps)>& use) const {
  const MapSet* last = nullptr;  // neighbours share their mappings
  late_.for_each([&](const WalkedSample& sample) {
    if (sample.maps != nullptr && sample.maps.get() != last) use(*sample.maps);
    last = sample.maps.get();
  });
  unjudged_.for_each_maps(use);
  postponed_.for_each_maps(use);
}

void SampleIntake::forget_gone() {
  const auto known = [this](std::uint32_t tgid) { return table_.find(tgid) != nullptr; };
  unwinder_.keep_only(known);
  interpreted_names_.keep_only(known);
  names_.keep_only(known);
  if (labels_ == nullptr) return;
  labels_->keep_only(known);
  thread_labels_->keep_only(known);
}

}  // namespace windlass::profiler
