// A pprof message that comes in pieces, taken apart: stacks are read at once, the rest is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <protozero/data_view.hpp>
#include <string>
#include <utility>
#include <vector>

#include "profiler/export/page_buffer.h"
#include "profiler/export/pprof_labels.h"
#include "profiler/export/pprof_stack_queue.h"
#include "windlass/bytes.h"

namespace windlass::exporter {

inline constexpr std::size_t kItemBytes = 4;  // what an item stands for in memory, about

// Most of a large profile is lists of locations and of labels, which are equal or alike. So memory holds a few times
// what is left of the message without them. All functions that take bytes throw a protozero::exception if a field is
// damaged, and std::bad_alloc. Of one thread, and one of its own beside it.
class PprofSplit {
 public:
  // `most_items`: of stacks, samples, and places of other fields. `by_thread`: stacks are read by a thread.
  PprofSplit(PprofStacks& stacks, std::uint64_t most_items, bool by_thread = false)
      : most_items_(most_items), stacks_(stacks, most_items, by_thread) {}

  // The next bytes of the message.
  void add(ByteView piece);
  // There are no more, or no more are wanted. Everything below but is_full() is for behind it.
  void finish();
  // Throws a protozero::exception if the message ends within a field.
  void check_end() const;

  // More items than the limit, or a damaged stack: nothing further is read.
  [[nodiscard]] bool is_full() const { return items_ > most_items_ || stacks_.is_full(); }
  // Why: of the first field for which it is so.
  [[nodiscard]] std::optional<Error> error() const;
  [[nodiscard]] std::uint64_t items() const { return items_ + stacks_.items(); }
  // Offset in the message of the field at hand.
  [[nodiscard]] std::uint64_t at() const { return at_; }

  // The fields that are not samples, one behind the other.
  [[nodiscard]] ByteView others() const { return others_.bytes(); }
  // The memory of [begin, end) of them; their bytes are not read again.
  void give_back_others(std::size_t begin, std::size_t end) { others_.give_back(begin, end); }
  // Of an offset in others(): that in the message.
  [[nodiscard]] std::uint64_t place_of(std::size_t other) const;
  [[nodiscard]] std::size_t samples() const { return samples_; }
  [[nodiscard]] const PprofLabelLists& labels() const { return labels_; }
  // Of a sample, by its number.
  [[nodiscard]] PprofStackQueue::Found stack_of(std::size_t sample) const { return stacks_.of(sample); }
  // Calls take(at, stack, labels, fields) for each sample, as long as it returns true. `at`: its place in
  // the message. `labels`: the number of a list. `fields`: those that are neither locations nor labels. Gives the
  // memory of `fields` back behind it: to be called once.
  template <typename Take>
  void take_samples(Take take) {
    std::size_t given_back = 0;
    std::uint64_t place = 0;
    for (std::size_t at = 0, number = 0; at < records_.size(); ++number) {
      Record record;
      std::memcpy(&record, records_.data() + at, sizeof record);
      const char* const fields = reinterpret_cast<const char*>(records_.data()) + at + sizeof record;
      const PprofStackQueue::Found found = stacks_.of(number);
      place += found.behind;
      if (!take(place, found.stack, record.labels, protozero::data_view(fields, record.rest))) return;
      at += sizeof record + record.rest;
      if (at - given_back > kGivenBack) records_.give_back(std::exchange(given_back, at), at);
    }
  }

 private:
  static constexpr std::size_t kGivenBack = std::size_t{8} << 20;
  // A sample without its stack.
  struct Record {
    std::uint32_t labels = 0;  // the number of a list
    std::uint32_t rest = 0;    // bytes of its other fields
  };
  // Of `bytes`, which begin with a field: its size, tag and all; 0: more bytes are needed to know it.
  static std::size_t field_size(const char* bytes, std::size_t size);
  std::size_t take_begun(protozero::data_view bytes);
  void take_field(protozero::data_view field);
  void take_sample(protozero::data_view fields);

  const std::uint64_t most_items_;
  std::uint64_t items_ = 0;  // without those of stacks
  std::uint64_t at_ = 0;
  std::string begun_;  // of a field whose end is in a later piece
  PageBuffer others_;
  std::vector<std::pair<std::size_t, std::uint64_t>> places_;  // runs of others_: offsets in it and in the message
  PageBuffer records_;                                         // a Record, and its other fields
  std::size_t samples_ = 0;
  PprofLabelLists labels_;
  PprofStackQueue stacks_;
};

}  // namespace windlass::exporter
