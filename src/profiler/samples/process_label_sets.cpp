#include "profiler/samples/process_label_sets.h"

#include <algorithm>
#include <utility>

namespace windlass::profiler {

std::uint32_t ProcessLabelSets::of(std::uint32_t tgid) {
  if (!read_) return 0;
  if (const auto found = known_.find(tgid); found != known_.end()) return found->second;
  const std::uint32_t number = number_of(read_(tgid).value_or(of_gone_));
  known_.emplace(tgid, number);
  return number;
}

void ProcessLabelSets::on_fork(std::uint32_t parent, std::uint32_t child) {
  if (read_) known_.insert_or_assign(child, of(parent));
}

void ProcessLabelSets::on_exec(std::uint32_t tgid) {
  if (!read_) return;
  if (auto now = read_(tgid)) known_.insert_or_assign(tgid, number_of(std::move(*now)));
}

void ProcessLabelSets::keep_only(const std::function<bool(std::uint32_t tgid)>& known) {
  std::erase_if(known_, [&](const auto& entry) { return !known(entry.first); });
}

std::function<std::uint32_t(std::uint32_t)> ProcessLabelSets::forget() {
  std::vector<Set> old{{}};
  old.swap(sets_);
  numbers_ = {{{}, 0}};
  has_overflowed_ = false;
  auto anew = [this, old = std::move(old)](std::uint32_t set) { return number_of(old[set]); };
  for (auto& [tgid, set] : known_) set = anew(set);
  return anew;
}

std::uint32_t ProcessLabelSets::with(std::uint32_t set, const Set& more) {
  Set both = sets_[set];
  for (const Label& label : more)
    if (std::ranges::find(sets_[set], label.key, &Label::key) == sets_[set].end()) both.push_back(label);
  std::ranges::sort(both);
  return number_of(std::move(both), set);
}

std::uint32_t ProcessLabelSets::number_of(Set set, std::uint32_t if_full) {
  const auto found = numbers_.find(set);
  if (found != numbers_.end()) return found->second;
  if (sets_.size() >= kMostSets) {
    has_overflowed_ = true;
    return if_full;
  }
  const auto number = static_cast<std::uint32_t>(sets_.size());
  sets_.push_back(set);
  numbers_.emplace(std::move(set), number);
  return number;
}

}  // namespace windlass::profiler
