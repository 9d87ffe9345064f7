#include "profiler/samples/aggregator.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "profiler/samples/mix.h"
#include "profiler/samples/user_frame.h"
#include "profiler/samples/wait_reasons.h"
#include "profiler/samples/waker_frames.h"

namespace windlass::profiler {
namespace {

constexpr std::uint32_t kSharedAnonymous = 0;  // no process has the number 0

// The label sets of a profile, made as they are asked for.
class LabelSets {
 public:
  LabelSets(profile::Profile& profile, std::span<const ProcessLabelSets::Set> of_processes)
      : profile_(profile), of_processes_(of_processes) {}

  // Of a process's set, and "reason" = "futex".
  std::uint32_t of(std::uint32_t process, std::uint16_t reason) {
    if (process >= of_processes_.size()) process = 0;
    if (process == 0 && reason == 0) return 0;
    const auto [known, is_new] =
        known_.try_emplace({process, reason}, static_cast<std::uint32_t>(profile_.label_sets.size()));
    if (!is_new) return known->second;
    std::vector<profile::Label>& set = profile_.label_sets.emplace_back();
    if (process != 0)
      for (const Label& label : of_processes_[process]) set.push_back({string(label.key), string(label.value)});
    if (reason != 0) set.push_back({string(kWaitReasonLabel), string(wait_reason(reason))});
    return known->second;
  }

 private:
  std::uint32_t string(std::string text) {
    const auto [known, is_new] = strings_.try_emplace(text, static_cast<std::uint32_t>(profile_.strings.size()));
    if (is_new) profile_.strings.push_back(std::move(text));
    return known->second;
  }

  profile::Profile& profile_;
  std::span<const ProcessLabelSets::Set> of_processes_;
  std::map<std::pair<std::uint32_t, std::uint16_t>, std::uint32_t> known_;
  std::map<std::string, std::uint32_t> strings_;
};

// The stacks of a Profile, which share the frames of their callers: those of a StackTree, by the same numbers.
class SharedStacks {
 public:
  explicit SharedStacks(const StackTree& tree) : empty_(profile::Stack::in_new_pool()), sizes_(tree.size()) {
    for (std::uint32_t stack = 1; stack < tree.size(); ++stack) {
      empty_.pool()->push(tree.caller(stack), tree.frame(stack));
      sizes_[stack] = sizes_[tree.caller(stack)] + 1;
    }
  }
  [[nodiscard]] profile::Stack at(std::uint32_t stack) const { return empty_.at_node(stack, sizes_[stack]); }

 private:
  const profile::Stack empty_;
  std::vector<std::uint32_t> sizes_;
};

}  // namespace

std::uint32_t Aggregator::use_of(ModuleUse::Kind kind, std::uint32_t number) {
  if (kind == ModuleUse::Kind::kAnonymous && anonymous_uses_ >= bounds_.anonymous_modules &&
      !use_numbers_.contains(use_key(kind, number)))
    number = kSharedAnonymous;
  const auto [found, added] = use_numbers_.try_emplace(use_key(kind, number), static_cast<std::uint32_t>(uses_.size()));
  if (added) {
    uses_.push_back({kind, number});
    if (kind == ModuleUse::Kind::kAnonymous) ++anonymous_uses_;
  }
  return found->second;
}

std::uint32_t Aggregator::location(std::uint32_t use, std::uint64_t address, std::uint32_t name) {
  const Place place{use, name, address};
  const auto known = location_numbers_.find(place.hash(), [&](std::uint32_t i) { return locations_[i] == place; });
  if (known) return *known;
  if (locations_.size() >= bounds_.locations) return profile::kNone;
  const auto number = static_cast<std::uint32_t>(locations_.size());
  locations_.push_back(place);
  location_numbers_.add(number, [this](std::uint32_t i) { return locations_[i].hash(); });
  return number;
}

std::uint32_t Aggregator::user_location(std::uint64_t frame, std::uint32_t tgid, const MapSet* maps,
                                        std::uint32_t name) {
  const std::uint64_t address = lookup_address(frame);
  const Mapping* mapping = maps != nullptr ? maps->find(address) : nullptr;
  if (mapping == nullptr) return location(use_of(ModuleUse::Kind::kUnknown, 0), address);
  if (mapping->generated()) return location(use_of(ModuleUse::Kind::kAnonymous, tgid), address, name);
  return location(use_of(ModuleUse::Kind::kRegistry, mapping->module), address - mapping->bias, name);
}

std::uint16_t Aggregator::comm(std::string_view text) {
  text = text.substr(0, text.find('\0'));
  if (const auto found = string_numbers_.find(std::string(text)); found != string_numbers_.end()) return found->second;
  if (strings_.size() >= bounds_.strings) return kNoComm;
  const auto number = static_cast<std::uint16_t>(strings_.size());
  strings_.emplace_back(text);
  string_numbers_.emplace(text, number);
  return number;
}

std::uint64_t Aggregator::Origin::hash() const {
  const std::uint64_t rest = std::uint64_t{comm} << 32 | std::uint64_t{event} << 16 | reason;
  return mix(mix(mix(tgid, tid), rest), labels) >> 16;
}

std::uint64_t Aggregator::SampleKey::hash() const {
  return mix(mix(stack, origin), std::uint64_t{end} << 8 | certainty) >> 16;
}

std::uint32_t Aggregator::origin(const Origin& origin) {
  const auto known = origin_numbers_.find(origin.hash(), [&](std::uint32_t i) { return origins_[i] == origin; });
  if (known) return *known;
  const auto number = static_cast<std::uint32_t>(origins_.size());
  origins_.push_back(origin);
  origin_numbers_.add(number, [this](std::uint32_t i) { return origins_[i].hash(); });
  return number;
}

std::uint32_t Aggregator::origin_of(const StackRecord& stack) {
  return origin({stack.tgid, stack.tid, comm(stack.comm), stack.event, stack.reason, stack.labels});
}

// `frames`: their locations, or kNone for want of room.
std::size_t Aggregator::find_or_store(const StackRecord& stack, std::span<const std::uint32_t> frames) {
  std::optional<std::uint32_t> at = StackTree::kEmpty;
  for (std::size_t i = frames.size(); i > 0 && at; --i)
    at = frames[i - 1] != profile::kNone ? stacks_.push(*at, frames[i - 1], bounds_.frames) : std::nullopt;
  if (at) {
    const SampleKey key{*at, origin_of(stack), stack.end, stack.certainty};
    if (const auto stored = store(key, frames.size(), bounds_)) return *stored;
  }
  return store_alone(stack, frames);
}

// There is no room for the stack.
std::size_t Aggregator::store_alone(const StackRecord& stack, std::span<const std::uint32_t> frames) {
  has_cut_ = true;
  Bounds more = bounds_;
  for (std::size_t* bound : {&more.frames, &more.samples, &more.sample_frames}) *bound += bounds_.alone;
  if (!frames.empty() && frames.front() != profile::kNone) {
    if (const auto at = stacks_.push(StackTree::kEmpty, frames.front(), more.frames)) {
      if (const auto stored = store({*at, origin_of(stack), WL_END_NO_ROOM, stack.certainty}, 1, more)) return *stored;
    }
  }
  // Its count, at least: one sample for each event.
  more.samples = std::numeric_limits<std::size_t>::max();
  StackRecord nobody;
  nobody.event = stack.event;
  return *store({StackTree::kEmpty, origin_of(nobody), WL_END_NO_ROOM, WL_DESCRIBED}, 0, more);
}

// Nothing if there is no room.
std::optional<std::uint32_t> Aggregator::store(const SampleKey& key, std::size_t frames, const Bounds& bounds) {
  const auto known = sample_numbers_.find(key.hash(), [&](std::uint32_t i) { return samples_[i].key == key; });
  if (known) return known;
  if (samples_.size() >= bounds.samples || sample_frames_ + frames > bounds.sample_frames) return std::nullopt;
  sample_frames_ += frames;
  const auto number = static_cast<std::uint32_t>(samples_.size());
  samples_.push_back({0, key});
  sample_numbers_.add(number, [this](std::uint32_t i) { return samples_[i].key.hash(); });
  return number;
}

std::size_t Aggregator::add(const StackRecord& stack, const MapSet* maps, std::uint64_t count) {
  scratch_.clear();
  // The innermost kernel frame is the interrupted instruction, the others are return addresses.
  for (std::size_t i = 0; i < stack.kernel.size(); ++i)
    scratch_.push_back(location(use_of(ModuleUse::Kind::kKernel, 0), stack.kernel[i] - (i == 0 ? 0 : 1)));
  for (std::size_t i = 0; i < stack.user.size(); ++i) {
    // A frame above an interrupted one is a signal trampoline: the kernel made the handler return to its first
    // instruction, and there is no call before that.
    const bool trampoline = i + 1 < stack.user.size() && is_exact(stack.user[i + 1]);
    scratch_.push_back(user_location(trampoline ? stack.user[i] | WL_FRAME_EXACT : stack.user[i], stack.tgid, maps,
                                     stack.names.empty() ? CodeNames::kUnknown : stack.names[i]));
  }
  const std::size_t sample = find_or_store(stack, scratch_);
  samples_[sample].count += count;
  return sample;
}

void Aggregator::change(std::size_t sample, const wl_count& before, const wl_count& now) {
  samples_[sample].count += now.count - before.count;
  if (sample >= values_.size()) values_.resize(sample + 1);
  values_[sample] += now.value - before.value;
}

std::size_t Aggregator::add_counted(const wl_stack_key& key, const StackRecord& stack, const MapSet* maps,
                                    std::uint64_t count) {
  const std::size_t sample = add(stack, maps, count);
  remember(key, static_cast<std::uint32_t>(sample));
  return sample;
}

void Aggregator::remember(const wl_stack_key& key, std::uint32_t sample) {
  if (const auto known = number_of(key)) {
    counted_[*known].sample = sample;
    return;
  }
  counted_.push_back({key, sample});
  counted_numbers_.add(static_cast<std::uint32_t>(counted_.size() - 1),
                       [this](std::uint32_t i) { return hash_of(counted_[i].key); });
}

std::optional<std::uint32_t> Aggregator::number_of(const wl_stack_key& key) const {
  return counted_numbers_.find(hash_of(key), [&](std::uint32_t i) {
    const wl_stack_key& other = counted_[i].key;
    return other.hash == key.hash && other.tgid == key.tgid && other.tid == key.tid;
  });
}

// ---- wakers ---------------------------------------------------------------------------------------------------------

void Aggregator::add_waker(const wl_waker_event& event) {
  const auto& head = event.head;
  wakers_[{event.hash, head.tgid, head.tid}] = {{event.wait_hash, head.tgid, head.tid}, event.waker, comm(head.comm)};
}

// Those that were joined before, too: a stack may have got other names meanwhile.
void Aggregator::join_wakers() {
  for (const auto& [key, woken] : wakers_)
    if (const auto joined = join(woken)) remember(key, *joined);
}

// The sample of a wait whose innermost frame seems to call the waker; without its waker if there is no room.
std::optional<std::uint32_t> Aggregator::join(const Woken& woken) {
  const auto wait = number_of(woken.wait);
  if (!wait) return std::nullopt;
  SampleKey key = samples_[counted_[*wait].sample].key;
  const auto waker = woken.waker.hash != 0 ? number_of(woken.waker) : std::nullopt;
  std::vector<std::uint32_t> frames;  // of the waker, innermost first
  std::uint64_t marker = woken.comm;
  if (waker) {
    const SampleKey& stack = samples_[counted_[*waker].sample].key;
    if (profile::is_truncated(stack.end)) marker |= kTruncatedWaker;
    key.certainty = std::max(key.certainty, stack.certainty);
    for (std::uint32_t at = stack.stack; at != StackTree::kEmpty; at = stacks_.caller(at))
      frames.push_back(stacks_.frame(at));
  }
  frames.push_back(location(use_of(ModuleUse::Kind::kWaker, 0), marker));
  std::size_t depth = frames.size();
  for (std::uint32_t at = key.stack; at != StackTree::kEmpty; at = stacks_.caller(at)) ++depth;
  std::optional<std::uint32_t> at = key.stack;
  for (std::size_t i = frames.size(); i > 0 && at; --i)
    if (frames[i - 1] != profile::kNone) at = stacks_.push(*at, frames[i - 1], bounds_.frames);
  if (!at) return counted_[*wait].sample;
  key.stack = *at;
  return store(key, depth, bounds_).value_or(counted_[*wait].sample);
}

std::string Aggregator::waker_text(std::uint64_t address) const {
  const auto comm = static_cast<std::uint16_t>(address);
  const std::string name = comm == kNoComm ? "another thread" : strings_[comm].empty() ? kAnInterrupt : strings_[comm];
  return fmt::format("{}{}{}]", kWokenBy, name, (address & kTruncatedWaker) != 0 ? " (truncated)" : "");
}

// ---- sums -----------------------------------------------------------------------------------------------------------

std::vector<wl_count> Aggregator::totals(const Counts& counts, std::uint64_t& unknown) const {
  std::vector<wl_count> total(samples_.size());
  for (std::size_t i = 0; i < samples_.size(); ++i)
    total[i] = {samples_[i].count, i < values_.size() ? values_[i] : 0, 0};
  counts([&](const wl_stack_key& key, const wl_count& more) {
    if (const auto known = number_of(key)) {
      wl_count& sum = total[counted_[*known].sample];
      sum.count += more.count;
      sum.value += more.value;
    } else if (more.told != 0) {  // else the event is counted as lost already
      unknown += more.count;
    }
  });
  return total;
}

void Aggregator::settle(const Counts& counts, std::uint64_t& unknown, const Keys& kept) {
  join_wakers();
  const std::vector<wl_count> total = totals(counts, unknown);
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    samples_[i].count = total[i].count;
    if (total[i].value == 0) continue;
    if (i >= values_.size()) values_.resize(i + 1);
    values_[i] = total[i].value;
  }
  std::vector<Counted> still;
  if (kept)
    kept([&](const wl_stack_key& key) {
      if (const auto known = number_of(key)) still.push_back(counted_[*known]);
    });
  wakers_.clear();
  counted_.clear();
  counted_numbers_.clear();
  for (const Counted& one : still) remember(one.key, one.sample);
}

std::vector<Aggregator::Use> Aggregator::uses() const {
  return {{"stack_frames", stacks_.size(), bounds_.frames},
          {"distinct_samples", samples_.size(), bounds_.samples},
          {"sample_frames", sample_frames_, bounds_.sample_frames},
          {"addresses", locations_.size(), bounds_.locations},
          {"thread_names", strings_.size(), bounds_.strings},
          {"processes_with_generated_code", anonymous_uses_, bounds_.anonymous_modules}};
}

bool Aggregator::is_half_full() const {
  return std::ranges::any_of(uses(), [](const Use& use) { return use.used > use.most / 2; });
}

// A name of a waker is a number of strings_.
std::uint32_t Aggregator::copy_location(const Aggregator& from, std::uint32_t number, const Renumbering& anew) {
  const Place& place = from.locations_[number];
  const ModuleUse& use = from.uses_[place.module];
  std::uint64_t address = place.address;
  if (use.kind == ModuleUse::Kind::kWaker) {
    const auto waker = static_cast<std::uint16_t>(address);
    address = (address & kTruncatedWaker) | (waker == kNoComm ? kNoComm : comm(from.strings_[waker]));
  }
  const std::uint32_t name = place.name == CodeNames::kUnknown ? place.name : anew.names(place.name);
  return location(use_of(use.kind, use.number), address, name);
}

// It counts nothing.
std::optional<std::uint32_t> Aggregator::copy_sample(const Aggregator& from, std::uint32_t number,
                                                     const Renumbering& anew) {
  SampleKey key = from.samples_[number].key;
  std::vector<std::uint32_t> frames;
  for (std::uint32_t at = key.stack; at != StackTree::kEmpty; at = from.stacks_.caller(at))
    frames.push_back(copy_location(from, from.stacks_.frame(at), anew));
  std::optional<std::uint32_t> at = StackTree::kEmpty;
  for (std::size_t i = frames.size(); i > 0 && at; --i) at = stacks_.push(*at, frames[i - 1], bounds_.frames);
  if (!at) return std::nullopt;
  key.stack = *at;
  Origin whose = from.origins_[key.origin];
  if (whose.comm != kNoComm) whose.comm = comm(from.strings_[whose.comm]);
  if (whose.labels != 0) whose.labels = anew.labels(whose.labels);
  key.origin = origin(whose);
  return store(key, frames.size(), bounds_);
}

void Aggregator::forget(std::vector<wl_count>& told, const Renumber& labels, const Renumber& names) {
  Aggregator kept(bounds_);
  std::vector<wl_count> told_of_kept;
  for (const Counted& one : counted_) {
    const auto copy = kept.copy_sample(*this, one.sample, {labels, names});
    if (!copy) continue;
    kept.remember(one.key, *copy);
    told_of_kept.resize(kept.samples_.size());
    if (one.sample >= told.size()) continue;
    const wl_count& before = told[one.sample];
    const std::uint64_t value = one.sample < values_.size() ? values_[one.sample] : 0;
    told_of_kept[*copy] = {before.count - std::min<std::uint64_t>(before.count, samples_[one.sample].count),
                           before.value - std::min<std::uint64_t>(before.value, value), 0};
  }
  told = std::move(told_of_kept);
  *this = std::move(kept);
}

void Aggregator::add_modules(profile::Profile& profile, const ModuleFiller& fill_module, const CodeNames& names) const {
  profile.modules.resize(uses_.size());
  for (std::size_t i = 0; i < uses_.size(); ++i) {
    profile::Module& module = profile.modules[i];
    switch (uses_[i].kind) {
      case ModuleUse::Kind::kKernel:
        module.path = "[kernel]";
        module.is_kernel = true;
        break;
      case ModuleUse::Kind::kRegistry: fill_module(uses_[i].number, module); break;
      case ModuleUse::Kind::kAnonymous:
        module.path = "[anon]";
        module.pid = uses_[i].number;
        module.open_path = names.open_path(module.pid);
        break;
      case ModuleUse::Kind::kWaker: module.path = kWakerModule; break;
      case ModuleUse::Kind::kUnknown: module.path = "[unmapped]"; break;
    }
  }
}

// The functions of a profile by their names. Whoever made the code may say its file at one time and not at another.
class Aggregator::FunctionNumbers {
 public:
  explicit FunctionNumbers(profile::Profile& profile) : profile_(profile) {}

  std::uint32_t of(const CodeFunction& function) {
    const auto [first, last] = numbers_.equal_range(function.name);
    for (auto known = first; known != last; ++known) {
      std::string& file = profile_.functions[known->second].file;
      if (file.empty()) file = function.file;
      if (file == function.file || function.file.empty()) return known->second;
    }
    const auto number = static_cast<std::uint32_t>(profile_.functions.size());
    profile_.functions.push_back({.name = function.name, .system_name = function.name, .file = function.file});
    numbers_.emplace(function.name, number);
    return number;
  }

 private:
  profile::Profile& profile_;
  std::unordered_multimap<std::string_view, std::uint32_t> numbers_;
};

void Aggregator::add_location(profile::Profile& profile, std::uint32_t number, const CodeNames& names,
                              FunctionNumbers& functions) const {
  const Place& place = locations_[number];
  profile::Location& location = profile.locations.emplace_back();
  location.module = place.module;
  location.address = place.address;
  if (uses_[place.module].kind == ModuleUse::Kind::kWaker) {
    const std::string text = waker_text(place.address);
    location.lines.push_back({static_cast<std::uint32_t>(profile.functions.size()), 0});
    profile.functions.push_back({.name = text, .system_name = text});
  }
  if (place.name == CodeNames::kUnknown) return;
  location.interpreted = uses_[place.module].kind == ModuleUse::Kind::kRegistry;
  for (std::uint32_t name = place.name; name != CodeNames::kUnknown; name = names.function(name).inlined_in) {
    const CodeFunction& function = names.function(name);
    if (function.name.empty()) continue;
    location.lines.push_back({functions.of(function), function.line});
    location.function_begin = function.begin;
  }
}

std::size_t Aggregator::for_code_since(
    std::size_t from, const std::function<void(std::uint32_t module, std::uint64_t address)>& take) const {
  for (std::size_t i = from; i < locations_.size(); ++i) {
    const ModuleUse& use = uses_[locations_[i].module];
    if (use.kind == ModuleUse::Kind::kRegistry) take(use.number, locations_[i].address);
  }
  return locations_.size();
}

// Its stack and its labels are to be added.
profile::Sample Aggregator::sample(std::size_t number, const wl_count& count) const {
  const SampleKey& key = samples_[number].key;
  const Origin& origin = origins_[key.origin];
  profile::Sample sample;
  sample.count = count.count;
  sample.value = count.value;
  sample.event = origin.event;
  sample.pid = origin.tgid;
  sample.tid = origin.tid;
  sample.comm = origin.comm == kNoComm ? profile::kNone : origin.comm;
  sample.end = key.end;
  sample.certainty = key.certainty;
  return sample;
}

profile::Profile Aggregator::build(const Counts& counts, std::uint64_t& unknown, const ModuleFiller& fill_module,
                                   const CodeNames& names, std::span<const ProcessLabelSets::Set> labels,
                                   std::vector<std::uint32_t>* numbers) const {
  profile::Profile profile;
  profile.strings = strings_;
  add_modules(profile, fill_module, names);
  profile.locations.reserve(locations_.size());
  FunctionNumbers functions(profile);
  for (std::uint32_t i = 0; i < locations_.size(); ++i) add_location(profile, i, names, functions);
  const auto total = totals(counts, unknown);
  LabelSets label_sets(profile, labels);
  const SharedStacks stacks(stacks_);
  profile.samples.reserve(samples_.size());
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    if (total[i].count == 0) continue;
    if (numbers != nullptr) numbers->push_back(static_cast<std::uint32_t>(i));
    const Origin& origin = origins_[samples_[i].key.origin];
    profile.samples.push_back(sample(i, total[i]));
    profile.samples.back().locations = stacks.at(samples_[i].key.stack);
    profile.samples.back().labels = label_sets.of(origin.labels, origin.reason);
  }
  return profile;
}

profile::Profile Aggregator::build_since(std::vector<wl_count>& told, const Counts& counts, std::uint64_t& unknown,
                                         const ModuleFiller& fill_module, const CodeNames& names,
                                         std::span<const ProcessLabelSets::Set> labels) const {
  profile::Profile profile;
  profile.strings = strings_;
  add_modules(profile, fill_module, names);
  FunctionNumbers functions(profile);
  std::unordered_map<std::uint32_t, std::uint32_t> used;  // of locations_: places in the profile
  const auto place_of = [&](std::uint32_t number) {
    const auto [place, is_new] = used.try_emplace(number, static_cast<std::uint32_t>(used.size()));
    if (is_new) add_location(profile, number, names, functions);
    return place->second;
  };
  const auto total = totals(counts, unknown);
  told.resize(samples_.size());
  LabelSets label_sets(profile, labels);
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    // What has counted for another sample meanwhile is told twice, until this one has as much again.
    const wl_count since{total[i].count - std::min(total[i].count, told[i].count),
                         total[i].value - std::min(total[i].value, told[i].value), 0};
    if (since.count == 0 && since.value == 0) continue;
    const Origin& origin = origins_[samples_[i].key.origin];
    profile::Sample& added = profile.samples.emplace_back(sample(i, since));
    for (std::uint32_t at = samples_[i].key.stack; at != StackTree::kEmpty; at = stacks_.caller(at))
      added.locations.push_back(place_of(stacks_.frame(at)));
    added.labels = label_sets.of(origin.labels, origin.reason);
    told[i] = total[i];
  }
  return profile;
}

Aggregator::TruncatedIn Aggregator::truncated_in(ModuleUse::Kind kind) {
  switch (kind) {
    case ModuleUse::Kind::kKernel: return TruncatedIn::kKernel;
    case ModuleUse::Kind::kRegistry: return TruncatedIn::kFile;
    case ModuleUse::Kind::kAnonymous: return TruncatedIn::kGenerated;
    case ModuleUse::Kind::kWaker: return TruncatedIn::kWaker;
    case ModuleUse::Kind::kUnknown: return TruncatedIn::kUnmapped;
  }
  return TruncatedIn::kNothing;
}

std::vector<Aggregator::Truncation> Aggregator::truncations(const Counts& counts) const {
  std::uint64_t unknown = 0;
  const auto total = totals(counts, unknown);
  std::map<std::tuple<std::uint8_t, TruncatedIn, std::uint32_t>, std::uint64_t> sums;
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    const SampleKey& key = samples_[i].key;
    if (!profile::is_truncated(key.end) || total[i].count == 0) continue;
    std::uint32_t outermost = key.stack;
    while (outermost != StackTree::kEmpty && stacks_.caller(outermost) != StackTree::kEmpty)
      outermost = stacks_.caller(outermost);
    const ModuleUse* use =
        outermost != StackTree::kEmpty ? &uses_[locations_[stacks_.frame(outermost)].module] : nullptr;
    const TruncatedIn in = use != nullptr ? truncated_in(use->kind) : TruncatedIn::kNothing;
    sums[{key.end, in, in == TruncatedIn::kFile ? use->number : 0}] += total[i].count;
  }
  std::vector<Truncation> sorted;
  for (const auto& [what, count] : sums)
    sorted.push_back({std::get<0>(what), std::get<1>(what), std::get<2>(what), count});
  std::sort(sorted.begin(), sorted.end(), [](const Truncation& a, const Truncation& b) { return a.count > b.count; });
  return sorted;
}

}  // namespace windlass::profiler
