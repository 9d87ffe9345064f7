#include "profiler/export/pprof_stacks.h"

#include <algorithm>
#include <cstring>
#include <protozero/exception.hpp>
#include <protozero/varint.hpp>
#include <utility>

namespace windlass::exporter {

protozero::data_view PprofStacks::callers_in(const List& list) {
  return {list.ids.data() + list.innermost, list.ids.size() - list.innermost};
}

void PprofStacks::add_hash(List& list) {
  const protozero::data_view ids = callers_in(list);
  std::uint64_t low = ids.size(), high = ids.size();
  const auto add = [&](std::uint64_t word) {
    low = mix_hash(low, word);
    high = (high ^ word) * 0xc2b2ae3d27d4eb4full + (high >> 31);
  };
  std::size_t at = 0;
  std::uint64_t word = 0;
  for (; at + sizeof word <= ids.size(); at += sizeof word) {
    std::memcpy(&word, ids.data() + at, sizeof word);
    add(word);
  }
  if (at != ids.size()) {
    word = 0;
    std::memcpy(&word, ids.data() + at, ids.size() - at);
    add(word);
  }
  list.low = low;
  list.high = static_cast<std::uint32_t>(high >> 32);
}

std::uint32_t PprofStacks::number_of(std::uint64_t id) {
  if (id - 1 < kUnusual) return static_cast<std::uint32_t>(id - 1);
  const auto [entry, is_new] = numbers_.try_emplace(id, kUnusual | static_cast<std::uint32_t>(unusual_.size()));
  if (is_new) unusual_.push_back(id);
  return entry->second;
}

std::uint64_t PprofStacks::id_of(std::uint32_t number) const {
  return (number & kUnusual) == 0 ? std::uint64_t{number} + 1 : unusual_[number & ~kUnusual];
}

PprofStacks::List PprofStacks::begin(protozero::data_view ids) const {
  List list{.ids = ids};
  if (ids.empty()) return list;
  const char *const begin = ids.data(), *const end = begin + ids.size();
  const char* const last = std::find_if(begin, end, [](char byte) { return (byte & 0x80) == 0; });
  list.innermost = static_cast<std::size_t>(last - begin) + 1;
  add_hash(list);
  known_.prefetch(list.low);
  return list;
}

// Only the size is right if it is more than `most`.
PprofStacks::Known PprofStacks::callers_of(const List& list, std::uint64_t most) {
  Known callers{.low = list.low, .high = list.high};
  const Known* const known =
      known_.find(list.low, [&](const Known& other) { return other.low == callers.low && other.high == callers.high; });
  if (known != nullptr) return *known;
  const protozero::data_view ids = callers_in(list);
  const char *at = ids.data(), *const end = at + ids.size();
  callers.size = static_cast<std::uint32_t>(std::count_if(at, end, [](char byte) { return (byte & 0x80) == 0; }));
  if (callers.size > most) return callers;
  stack_.clear();
  while (at != end) stack_.push_back(number_of(protozero::decode_varint(&at, end)));
  callers.node = interner_->node_of(stack_);
  known_.add(callers);
  return callers;
}

std::uint32_t PprofStacks::leaf_of(std::uint32_t callers, std::uint32_t innermost) {
  Leaf leaf{.callers = callers, .innermost = innermost};
  const Leaf* const known = leaves_.find(
      leaf.place(), [&](const Leaf& other) { return other.callers == callers && other.innermost == innermost; });
  if (known != nullptr) return known->node;
  leaf.node = root_.pool()->push(callers, innermost);
  leaves_.add(leaf);
  return leaf.node;
}

SampleStack PprofStacks::take(const List& list, std::uint64_t most) {
  if (list.ids.empty()) return {};
  const char* at = list.ids.data();
  const std::uint32_t innermost = number_of(protozero::decode_varint(&at, at + list.innermost));
  const Known callers = list.innermost == list.ids.size() ? Known{} : callers_of(list, most);
  if (callers.size >= most) return {.node = 0, .size = callers.size + 1};
  return {.node = leaf_of(callers.node, innermost), .size = callers.size + 1};
}

void PprofStacks::settle(const IdMap& locations, const std::vector<std::uint32_t>& frames_in) {
  locations_ = &locations;
  interner_.reset();
  known_ = {};
  leaves_ = {};
  profile::StackPool& pool = *root_.pool();
  frames_.assign(pool.nodes().size(), 0);
  for (std::size_t node = 1; node < frames_.size(); ++node) {
    const profile::StackPool::Node& of = pool.nodes()[node];
    const std::uint32_t location = locations.find(id_of(of.location));
    const bool is_whole = location != profile::kNone && frames_[of.caller] != kWrong;
    frames_[node] = is_whole ? static_cast<std::uint32_t>(std::min<std::uint64_t>(
                                   kMostFrames, std::uint64_t{frames_[of.caller]} + frames_in[location]))
                             : kWrong;
    most_frames_ = std::max(most_frames_, frames_[node]);
  }
  if (most_frames_ == kWrong) return;
  for (std::uint32_t node = 1; node < frames_.size(); ++node)
    pool.set_location(node, locations.find(id_of(pool.nodes()[node].location)));
}

std::uint64_t PprofStacks::wrong_location(const profile::Stack& stack) const {
  for (const std::uint32_t number : std::as_const(stack))
    if (locations_->find(id_of(number)) == profile::kNone) return id_of(number);
  return 0;
}

}  // namespace windlass::exporter
