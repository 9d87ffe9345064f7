#include "profiler/samples/time_line.h"

#include <algorithm>

#include "base/leb128.h"
#include "profiler/samples/mix.h"

namespace windlass::profiler {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{16} << 10;
constexpr std::size_t kMostEntryBytes = 30;  // three numbers of 64 bits

std::uint64_t take_number(const std::uint8_t*& from) {
  std::uint64_t number = 0;
  for (unsigned shift = 0;; shift += 7) {
    const std::uint8_t byte = *from++;
    number |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return number;
  }
}

// Small numbers for small differences, also for negative ones: CPUs tell their times one after the other.
std::uint64_t fold(std::uint64_t difference) {
  return difference << 1 ^ (static_cast<std::int64_t>(difference) < 0 ? ~std::uint64_t{0} : 0);
}
std::uint64_t unfold(std::uint64_t folded) { return folded >> 1 ^ ((folded & 1) != 0 ? ~std::uint64_t{0} : 0); }

// A key takes its place, and one and a third in the table of numbers, which doubles; then the number of its sample.
constexpr std::size_t kKeyBytes = sizeof(wl_stack_key) + 2 * sizeof(std::uint32_t);

std::uint64_t key_hash(const wl_stack_key& key) { return mix(key.hash, key.tid) >> 16; }

}  // namespace

std::uint32_t TimeLine::number_of(const wl_stack_key& key) {
  const auto known = key_numbers_.find(key_hash(key), [&](std::uint32_t i) {
    return keys_[i].hash == key.hash && keys_[i].tgid == key.tgid && keys_[i].tid == key.tid;
  });
  if (known) return *known;
  keys_.push_back(key);
  const auto number = static_cast<std::uint32_t>(keys_.size() - 1);
  key_numbers_.add(number, [this](std::uint32_t i) { return key_hash(keys_[i]); });
  bytes_ += kKeyBytes;
  return number;
}

void TimeLine::add(std::uint32_t sample, std::uint64_t time) { append({{sample, false}, time, 0}); }

void TimeLine::add(const wl_stack_key& key, std::uint64_t time, std::uint64_t lasted) {
  append({{number_of(key), true}, time, lasted});
}

void TimeLine::append(const Entry& entry) {
  if (lending_) {
    lent_.push_back(entry);
    return;
  }
  auto& chunks = epochs_.back().chunks;
  if (chunks.empty() || chunks.back().bytes.size() + kMostEntryBytes > kChunkBytes) {
    Chunk& chunk = chunks.emplace_back();
    chunk.bytes.reserve(kChunkBytes);
    chunk.first = chunk.last = entry.time;
    bytes_ += kChunkBytes;
    while (bytes_ > max_bytes_ && (epochs_.size() > 1 || chunks.size() > 1)) give_up_oldest();
  }
  Chunk& chunk = chunks.back();
  put_uleb128(chunk.bytes, fold(entry.time - chunk.last));
  put_uleb128(chunk.bytes, std::uint64_t{entry.owner.number} << 1 | (entry.owner.is_key ? 1 : 0));
  put_uleb128(chunk.bytes, entry.lasted);
  chunk.last = entry.time;
  ++chunk.count;
}

void TimeLine::give_up_oldest() {
  auto& chunks = epochs_.front().chunks;
  if (!chunks.empty()) {
    given_up_ += chunks.front().count;
    first_kept_ = chunks.front().last;
    chunks.pop_front();
    bytes_ -= kChunkBytes;
  }
  if (!chunks.empty() || epochs_.size() == 1) return;
  bytes_ -= epochs_.front().samples.size() * sizeof(std::uint32_t);
  epochs_.pop_front();
}

void TimeLine::take_back() {
  lent_.clear();
  lending_ = false;
}

std::vector<std::uint32_t> TimeLine::samples_of_keys(const SampleOf& sample_of) const {
  std::vector<std::uint32_t> samples;
  samples.reserve(keys_.size());
  for (const wl_stack_key& key : keys_) samples.push_back(sample_of(key).value_or(profile::kNone));
  return samples;
}

void TimeLine::settle(const SampleOf& sample_of) {
  epochs_.back().samples = samples_of_keys(sample_of);
  bytes_ -= keys_.size() * (kKeyBytes - sizeof(std::uint32_t));
  epochs_.emplace_back();
  keys_ = {};
  key_numbers_.clear();
}

template <typename EntryUse>
void TimeLine::decode(const Chunk& chunk, EntryUse use) {
  const std::uint8_t* at = chunk.bytes.data();
  std::uint64_t time = chunk.first;
  for (std::size_t i = 0; i < chunk.count; ++i) {
    time += unfold(take_number(at));
    const std::uint64_t owner = take_number(at), lasted = take_number(at);
    use(Entry{{static_cast<std::uint32_t>(owner >> 1), (owner & 1) != 0}, time, lasted});
  }
}

// `now`: the samples of the last epoch's keys.
void TimeLine::for_each(const std::vector<std::uint32_t>& now, const Use& use) const {
  const auto hand_out = [&](const Entry& entry, const std::vector<std::uint32_t>& of_keys) {
    const std::uint32_t sample = entry.owner.is_key ? of_keys[entry.owner.number] : entry.owner.number;
    if (sample != profile::kNone) use(sample, entry.time, entry.lasted);
  };
  for (const Epoch& epoch : epochs_) {
    const auto& of_keys = &epoch == &epochs_.back() ? now : epoch.samples;
    for (const Chunk& chunk : epoch.chunks) decode(chunk, [&](const Entry& entry) { hand_out(entry, of_keys); });
  }
  for (const Entry& entry : lent_) hand_out(entry, now);
}

void TimeLine::write(profile::Profile& profile, std::span<const std::uint32_t> numbers, std::uint64_t start,
                     const SampleOf& sample_of) const {
  const std::vector<std::uint32_t> now = samples_of_keys(sample_of);
  std::vector<std::uint32_t> places(numbers.empty() ? 0 : *std::ranges::max_element(numbers) + std::size_t{1},
                                    profile::kNone);
  for (std::size_t i = 0; i < numbers.size(); ++i) places[numbers[i]] = static_cast<std::uint32_t>(i);
  const auto sample_at = [&](std::uint32_t number) -> profile::Sample* {
    if (number >= places.size() || places[number] == profile::kNone) return nullptr;
    profile::Sample& sample = profile.samples[places[number]];
    return profile.events[sample.event].per_time != 0 ? &sample : nullptr;
  };
  for_each(now, [&](std::uint32_t number, std::uint64_t, std::uint64_t) {
    profile::Sample* sample = sample_at(number);
    if (sample != nullptr && sample->times < sample->count / profile.events[sample->event].per_time) ++sample->times;
  });
  std::uint64_t sum = 0;
  for (profile::Sample& sample : profile.samples) {
    sample.first_time = sum;
    sum += sample.times;
  }
  profile.times.resize(sum);
  std::vector<std::uint32_t> used(profile.samples.size());
  for_each(now, [&](std::uint32_t number, std::uint64_t time, std::uint64_t lasted) {
    const profile::Sample* sample = sample_at(number);
    if (sample == nullptr) return;
    std::uint32_t& count = used[places[number]];
    if (count == sample->times) return;
    profile.times[sample->first_time + count++] = {time > start ? time - start : 0, lasted};
  });
  for (const profile::Sample& sample : profile.samples)
    std::ranges::sort(profile::times_of(profile, sample), {}, &profile::SampleTime::begin);
}

}  // namespace windlass::profiler
