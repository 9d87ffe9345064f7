#include "profiler/export/pprof_stacks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <protozero/exception.hpp>
#include <protozero/varint.hpp>
#include <utility>

namespace windlass::exporter {

void PprofStacks::expect(std::size_t samples) {
  known_.resize(std::bit_ceil(std::clamp<std::size_t>(2 * samples, 16, kMostKnown)));
}

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

SampleStack PprofStacks::read(protozero::data_view ids, std::uint64_t most) {
  SampleStack stack;
  const char *at = ids.data(), *const end = at + ids.size();
  const auto size = std::count_if(at, end, [](char byte) { return (byte & 0x80) == 0; });
  stack.size = static_cast<std::uint32_t>(size);
  if (stack.size > most) return stack;
  stack_.clear();
  while (at != end) {
    const std::uint64_t id = protozero::decode_varint(&at, end);
    const std::uint32_t location = locations_.find(id);
    if (location == profile::kNone) {
      stack.wrong_location = id;
      return stack;
    }
    stack.frames += frames_in_[location];
    stack_.push_back(location);
  }
  stack.node = interner_.node_of(stack_);
  return stack;
}

SampleStack PprofStacks::take(std::uint64_t most) {
  const protozero::data_view ids = std::exchange(list_, {});
  if (ids.empty()) return {};
  const Known hash = hash_of(ids);
  const std::size_t place = hash.low & (known_.size() - 1);
  Known& first = known_[place];
  Known& second = known_[place ^ 1];
  for (const Known* known : {&first, &second})
    if (known->is(hash)) {
      all_.clear();
      return {.node = known->node, .size = known->size, .frames = known->frames};
    }
  const SampleStack stack = read(ids, most);
  all_.clear();
  if (stack.size > most || stack.wrong_location || stack.frames > std::numeric_limits<std::uint32_t>::max())
    return stack;
  if (first.size != 0) second = first;
  first = hash;
  first.node = stack.node;
  first.size = stack.size;
  first.frames = static_cast<std::uint32_t>(stack.frames);
  return stack;
}

}  // namespace windlass::exporter
