// A pprof message that comes in pieces, taken apart: stacks are read at once, the rest is kept.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <protozero/data_view.hpp>
#include <string>
#include <utility>
#include <vector>

#include "profiler/export/page_buffer.h"
#include "profiler/export/pprof_stacks.h"
#include "windlass/bytes.h"

namespace windlass::exporter {

inline constexpr std::size_t kItemBytes = 4;  // what an item stands for in memory, about

// A sample without its labels and values.
struct SplitSample {
  std::uint64_t at = 0;  // offset in the message
  SampleStack stack{};
  std::uint32_t rest = 0;  // bytes of its other fields
};

// Most of a large profile is lists of locations, which are equal or alike. So memory holds a few times what is left of
// the message without them. All functions that take bytes throw a protozero::exception if a field is damaged, and
// std::bad_alloc. Of one thread.
class PprofSplit {
 public:
  // `most_items`: of stacks, samples, and places of other fields.
  PprofSplit(PprofStacks& stacks, std::uint64_t most_items) : stacks_(stacks), most_items_(most_items) {}

  // The next bytes of the message.
  void add(ByteView piece);
  // There are no more. The message must not end within a field.
  void finish();

  // More items than the limit: nothing further is read.
  [[nodiscard]] bool is_full() const { return items_ > most_items_; }
  [[nodiscard]] std::uint64_t items() const { return items_; }
  // Offset in the message of the field at hand.
  [[nodiscard]] std::uint64_t at() const { return at_; }

  // The fields that are not samples, one behind the other.
  [[nodiscard]] ByteView others() const { return others_.bytes(); }
  // Of an offset in others(): that in the message.
  [[nodiscard]] std::uint64_t place_of(std::size_t other) const;
  [[nodiscard]] std::size_t samples() const { return samples_; }
  // Calls take(sample, fields) for each sample, as long as it returns true. `fields`: those that are no stack. Gives
  // the memory of samples back behind it: to be called once.
  template <typename Take>
  void take_samples(Take take) {
    std::size_t given_back = 0;
    for (std::size_t at = 0; at < records_.size();) {
      const SplitSample sample = record_at(at);
      const char* const fields = reinterpret_cast<const char*>(records_.data()) + at + sizeof sample;
      if (!take(sample, protozero::data_view(fields, sample.rest))) return;
      at += sizeof sample + sample.rest;
      if (at - given_back > kGivenBack) records_.give_back(std::exchange(given_back, at), at);
    }
  }

 private:
  static constexpr std::size_t kItemsOfNode = 8;
  static constexpr std::size_t kGivenBack = std::size_t{8} << 20;
  // Of `bytes`, which begin with a field: its size, tag and all; 0: more bytes are needed to know it.
  static std::size_t field_size(const char* bytes, std::size_t size);
  [[nodiscard]] SplitSample record_at(std::size_t at) const;
  std::size_t take_begun(protozero::data_view bytes);
  void finish_oldest();
  void take_field(protozero::data_view field);
  void take_sample(protozero::data_view fields);

  PprofStacks& stacks_;
  const std::uint64_t most_items_;
  std::uint64_t items_ = 0;
  std::uint64_t at_ = 0;
  std::string begun_;  // of a field whose end is in a later piece
  PageBuffer others_;
  std::vector<std::pair<std::size_t, std::uint64_t>> places_;  // runs of others_: offsets in it and in the message
  PageBuffer records_;                                         // a SplitSample, and its other fields
  // The youngest samples, whose stacks have no nodes yet.
  struct Unfinished {
    std::size_t record = 0;  // in records_
    PprofStacks::Begun stack;
  };
  static constexpr std::size_t kMostUnfinished = 16;
  std::array<Unfinished, kMostUnfinished> unfinished_;  // a ring
  std::size_t finished_ = 0;                            // of samples_
  std::size_t samples_ = 0;
};

}  // namespace windlass::exporter
