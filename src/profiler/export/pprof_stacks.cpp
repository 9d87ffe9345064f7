#include "profiler/export/pprof_stacks.h"

#include <algorithm>
#include <cstring>
#include <protozero/exception.hpp>
#include <protozero/varint.hpp>
#include <utility>

namespace windlass::exporter {

PprofStacks::Known PprofStacks::hash_of(protozero::data_view ids) {
  std::uint64_t low = ids.size(), high = ids.size();
  for (std::size_t at = 0; at < ids.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, ids.data() + at, std::min(sizeof word, ids.size() - at));
    low = mix_hash(low, word);
    high = (high ^ word) * 0xc2b2ae3d27d4eb4full + (high >> 31);
  }
  return {.low = low, .high = static_cast<std::uint32_t>(high >> 32)};
}

void PprofStacks::add(protozero::data_view ids) {
  if (ids.empty()) return;
  if ((ids.data()[ids.size() - 1] & 0x80) != 0) throw protozero::end_of_buffer_exception();
  if (list_.empty()) {
    list_ = ids;
    return;
  }
  if (all_.empty()) all_.assign(list_.data(), list_.size());
  all_.append(ids.data(), ids.size());
  list_ = {all_.data(), all_.size()};
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

const PprofStacks::Known* PprofStacks::find(const Known& hash) const {
  const std::size_t place = hash.low & (known_.size() - 1);
  for (const Known* known : {&known_[place], &known_[place ^ 1]})
    if (known->is(hash)) return known;
  return nullptr;
}

// Only the size is right if it is more than `most`.
PprofStacks::Known PprofStacks::callers_of(protozero::data_view ids, std::uint64_t most) {
  Known hash = hash_of(ids);
  if (const Known* const known = find(hash)) return *known;
  const char *at = ids.data(), *const end = at + ids.size();
  hash.size = static_cast<std::uint32_t>(std::count_if(at, end, [](char byte) { return (byte & 0x80) == 0; }));
  if (hash.size > most) return hash;
  stack_.clear();
  while (at != end) stack_.push_back(number_of(protozero::decode_varint(&at, end)));
  hash.node = interner_->node_of(stack_);
  remember(hash);
  return hash;
}

PprofStacks::Begun PprofStacks::take(std::uint64_t most) {
  const protozero::data_view ids = std::exchange(list_, {});
  Begun stack;
  if (ids.empty()) return stack;
  const char *at = ids.data(), *const end = at + ids.size();
  stack.innermost = number_of(protozero::decode_varint(&at, end));
  stack.size = 1;
  if (at != end) {
    const Known callers = callers_of({at, static_cast<std::size_t>(end - at)}, most);
    stack.callers = callers.node;
    stack.size += callers.size;
  }
  all_.clear();
  interner_->prefetch(stack.callers, stack.innermost);
  return stack;
}

SampleStack PprofStacks::finish(const Begun& stack) {
  if (stack.size == 0) return {};
  return {.node = interner_->child_of(stack.callers, stack.innermost), .size = stack.size};
}

void PprofStacks::remember(const Known& list) {
  if (++used_ * 2 > known_.size() && known_.size() < kMostKnown) grow();
  put(list);
}

void PprofStacks::put(const Known& list) {
  const std::size_t place = list.low & (known_.size() - 1);
  if (known_[place].size != 0) known_[place ^ 1] = known_[place];
  known_[place] = list;
}

void PprofStacks::grow() {
  std::vector<Known> old(known_.size() * 4);
  old.swap(known_);
  for (const Known& list : old)
    if (list.size != 0) put(list);
}

void PprofStacks::settle(const IdMap& locations, const std::vector<std::uint32_t>& frames_in) {
  locations_ = &locations;
  interner_.reset();
  known_ = std::vector<Known>();
  profile::StackPool& pool = *root_.pool();
  frames_.assign(pool.nodes().size(), 0);
  bool wrong = false;
  for (std::size_t node = 1; node < frames_.size(); ++node) {
    const profile::StackPool::Node& of = pool.nodes()[node];
    const std::uint32_t location = locations.find(id_of(of.location));
    wrong |= location == profile::kNone;
    const bool is_whole = location != profile::kNone && frames_[of.caller] != kWrong;
    frames_[node] = is_whole ? frames_[of.caller] + frames_in[location] : kWrong;
  }
  if (wrong) return;
  for (std::uint32_t node = 1; node < frames_.size(); ++node)
    pool.set_location(node, locations.find(id_of(pool.nodes()[node].location)));
}

std::uint64_t PprofStacks::wrong_location(const SampleStack& stack) const {
  const profile::Stack numbers = stack_of(stack);
  for (const std::uint32_t number : std::as_const(numbers))
    if (locations_->find(id_of(number)) == profile::kNone) return id_of(number);
  return 0;
}

}  // namespace windlass::exporter
