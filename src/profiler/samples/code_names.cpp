#include "profiler/samples/code_names.h"

#include <utility>

#include <fmt/format.h>

#include "base/monotonic.h"
#include "os/perf_map.h"

namespace windlass::profiler {

std::uint32_t CodeNames::intern(const Function& function, std::uint32_t inlined_in) {
  key_.assign(reinterpret_cast<const char*>(&function.begin), sizeof function.begin);
  key_.append(reinterpret_cast<const char*>(&function.line), sizeof function.line);
  key_.append(reinterpret_cast<const char*>(&inlined_in), sizeof inlined_in);
  key_.append(function.name) += '\0';
  key_ += function.file;
  if (const auto known = numbers_.find(key_); known != numbers_.end()) return known->second;
  const std::uint32_t number = add(function, inlined_in);
  if (number != kUnknown) numbers_.emplace(key_, number);
  return number;
}

std::uint32_t CodeNames::add(const Function& function, std::uint32_t inlined_in) {
  const std::size_t bytes = function.name.size() + function.file.size();
  if (functions_.size() == kMaxFunctions || bytes > kMaxBytes - bytes_) return kUnknown;
  bytes_ += bytes;
  functions_.push_back(
      {function.begin, std::string(function.name), std::string(function.file), function.line, inlined_in});
  return static_cast<std::uint32_t>(functions_.size());
}

std::uint32_t CodeNames::find_published(sources::NameSource& code, const CodePlace& place, std::uint64_t time) {
  inlined_.clear();
  const std::uint64_t begin = code.functions_at(place.address, place.function, time, inlined_);
  std::uint32_t number = kUnknown;
  for (auto function = inlined_.rbegin(); function != inlined_.rend(); ++function)
    number = intern({begin, function->name, function->file, function->line}, number);
  return number;
}

void CodeNames::look(std::uint32_t tgid, Followed& followed, std::uint64_t now) {
  if (followed.ended || now < followed.next_look) return;
  followed.next_look = now + kLookInterval;
  if (followed.map == nullptr) {
    auto map = std::make_unique<PerfMap>();
    if (map->open(os::perf_map_path(static_cast<pid_t>(tgid)), tgid)) followed.map = std::move(map);
  }
  if (followed.map != nullptr)
    followed.renamed |= followed.map->read(now);
  else
    followed.next_look = now + kOpenInterval;
}

std::uint32_t CodeNames::find(std::uint32_t tgid, const CodePlace& place, std::uint64_t time, std::uint64_t now) {
  if (const auto* code = place.maps.published_of(place.mapping); code != nullptr)
    if (const std::uint32_t number = find_published(**code, place, time); number != kUnknown) return number;
  if (!place.mapping.generated()) return kUnknown;  // the file's symbols say it
  Followed& followed = followed_[tgid];
  look(tgid, followed, now);
  if (followed.map == nullptr) return kUnknown;
  const auto function = followed.map->find(place.address, time);
  return function ? intern({function->begin, function->name}) : kUnknown;
}

std::uint32_t CodeNames::find_late(std::uint32_t tgid, const CodePlace& place, std::uint64_t time, std::uint64_t now) {
  const auto* code = place.maps.published_of(place.mapping);
  if (code == nullptr || (*code)->is_settled(time, 0)) return find(tgid, place, time, now);
  LateOfProcess& of_process = late_[tgid];
  const std::uint64_t interval = time - time % of_process.interval;
  const auto [late, is_new] = of_process.numbers.try_emplace({code->get(), place.address, interval}, kUnknown);
  if (!is_new) return late->second;
  const std::uint32_t number = add({});
  late->second = number;
  if (number == kUnknown) return kUnknown;
  of_process.unresolved.push_back({*code, place.address, time, number});
  if (of_process.unresolved.size() % kLateStep == 0 && of_process.interval < kLongestLateInterval)
    of_process.interval *= 2;
  return number;
}

std::function<std::uint32_t(std::uint32_t)> CodeNames::forget() {
  std::deque<CodeFunction> old;
  old.swap(functions_);
  numbers_.clear();
  bytes_ = 0;
  return [this, old = std::move(old)](std::uint32_t number) {
    std::vector<const CodeFunction*> inlined;  // innermost first
    for (; number != kUnknown; number = old[number - 1].inlined_in) inlined.push_back(&old[number - 1]);
    std::uint32_t now = kUnknown;
    for (auto function = inlined.rbegin(); function != inlined.rend(); ++function)
      now = intern({(*function)->begin, (*function)->name, (*function)->file, (*function)->line}, now);
    return now;
  };
}

void CodeNames::resolve() {
  for (const auto& [tgid, late] : late_) resolve(late);
  late_.clear();
}

void CodeNames::resolve(const LateOfProcess& of_process) {
  const std::uint64_t now = monotonic_ns();
  for (const Late& late : of_process.unresolved) {
    (void)late.code->is_settled(late.time, now);
    inlined_.clear();
    const std::uint64_t begin = late.code->functions_at(late.address, 0, late.time, inlined_);
    if (inlined_.empty()) continue;
    sources::NamedFunction& function = inlined_.back();
    const std::size_t bytes = function.name.size() + function.file.size();
    if (bytes > kMaxBytes - bytes_) continue;
    bytes_ += bytes;
    functions_[late.number - 1] = {begin, std::move(function.name), std::move(function.file), function.line};
  }
}

void CodeNames::poll(std::uint64_t now, const std::function<void(std::uint32_t tgid)>& renamed) {
  for (auto& [tgid, followed] : followed_) {
    if (followed.map != nullptr) look(tgid, followed, now);
    if (!followed.renamed || followed.ended || now < followed.next_rename) continue;
    followed.renamed = false;
    followed.next_rename = now + kRenameInterval;
    renamed(tgid);
  }
}

void CodeNames::end(std::uint32_t tgid) {
  // It says no more, and what it has said is not kept for those that have ended.
  if (const auto late = late_.find(tgid); late != late_.end()) {
    resolve(late->second);
    late_.erase(late);
  }
  const auto followed = followed_.find(tgid);
  if (followed == followed_.end() || followed->second.ended) return;
  if (followed->second.map == nullptr) {
    followed_.erase(followed);
    return;
  }
  (void)followed->second.map->read(~std::uint64_t{0} - 1);
  followed->second.ended = true;
  dead_.push_back(tgid);
  if (dead_.size() <= kMaxDead) return;
  followed_.erase(dead_.front());
  dead_.pop_front();
}

void CodeNames::keep_only(const std::function<bool(std::uint32_t tgid)>& known) {
  std::vector<std::uint32_t> gone;
  for (const auto& [tgid, late] : late_)
    if (!known(tgid)) gone.push_back(tgid);
  for (const auto& [tgid, followed] : followed_)
    if (!followed.ended && !known(tgid)) gone.push_back(tgid);
  for (const std::uint32_t tgid : gone) end(tgid);
}

std::string CodeNames::open_path(std::uint32_t tgid) const {
  const auto followed = followed_.find(tgid);
  if (followed == followed_.end() || followed->second.map == nullptr || followed->second.map->fd() < 0) return {};
  return fmt::format("/proc/self/fd/{}", followed->second.map->fd());
}

}  // namespace windlass::profiler
