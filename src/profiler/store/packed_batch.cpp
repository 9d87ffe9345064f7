#include "profiler/store/packed_batch.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/leb128.h"
#include "profiler/export/gzip.h"
#include "profiler/store/clickhouse_wire.h"

namespace windlass::store {

namespace {

constexpr std::string_view kPackedMark = "windlass batch 1";
constexpr std::uint64_t kMostPackedBytes = std::uint64_t{1} << 30;
constexpr const char* kNoPackedBatch = "a batch that waited is damaged";

// What RowReader reads.
class BatchBytes {
 public:
  template <typename Number>
  void number(Number value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void length(std::uint64_t count) { put_uleb128(bytes_, count); }
  void text(std::string_view text) {
    length(text.size());
    bytes_ += text;
  }
  void texts(const std::vector<std::string>& list) {
    length(list.size());
    for (const std::string& one : list) text(one);
  }
  void indexes(const std::vector<std::uint32_t>& list) {
    length(list.size());
    for (const std::uint32_t index : list) number(index);
  }
  // Each as `put` does.
  template <typename List, typename Put>
  void each(const List& list, Put put) {
    number(static_cast<std::uint64_t>(list.size()));
    for (const auto& one : list) put(one);
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

void put_names(BatchBytes& to, const profile::Profile& profile) {
  to.texts(profile.strings);
  to.each(profile.modules, [&](const profile::Module& it) {
    to.text(it.path);
    to.text(it.build_id);
    for (const std::uint64_t number : {it.begin, it.end, it.file_offset}) to.number(number);
    to.number(it.pid);
    to.number(std::uint8_t{it.is_kernel});
  });
  to.each(profile.functions, [&](const profile::Function& it) {
    for (const std::string* text : {&it.name, &it.system_name, &it.file}) to.text(*text);
    to.number(it.start_line);
  });
  to.each(profile.locations, [&](const profile::Location& it) {
    to.number(it.module);
    to.number(it.address);
    to.number(it.function_begin);
    to.number(std::uint8_t{it.interpreted});
    to.each(it.lines, [&](const profile::Line& line) {
      to.number(line.function);
      to.number(line.line);
    });
  });
}

void put_samples(BatchBytes& to, const profile::Profile& profile) {
  to.each(profile.events, [&](const profile::Event& it) {
    for (const std::string* text : {&it.name, &it.unit, &it.counted}) to.text(*text);
    to.number(it.period);
    to.number(it.per_time);
  });
  to.each(profile.label_sets, [&](const std::vector<profile::Label>& set) {
    to.each(set, [&](const profile::Label& it) {
      to.number(it.key);
      to.number(it.value);
    });
  });
  to.each(profile.samples, [&](const profile::Sample& it) {
    to.indexes(it.locations);
    for (const std::uint64_t number : {it.count, it.value}) to.number(number);
    for (const std::uint32_t number : {it.pid, it.tid, it.comm, it.event, it.labels}) to.number(number);
    to.number(it.end);
    to.number(it.certainty);
    to.number(it.times);
    to.number(it.first_time);
  });
  to.each(profile.times, [&](const profile::SampleTime& it) {
    to.number(it.begin);
    to.number(it.lasted);
  });
  to.indexes(profile.roots);
  for (const std::uint64_t number : {profile.start_unix_ns, profile.duration_ns, profile.lost}) to.number(number);
  to.number(profile.shown_event);
  to.number(std::uint8_t{profile.ends_known});
  to.texts(profile.comments);
}

// So many elements, as long as there are bytes.
template <typename List, typename Take>
void take_each(RowReader& from, List& list, Take take) {
  list.clear();
  for (std::uint64_t count = from.u64(); count > 0 && from.has_more(); --count) list.push_back(take());
}

void take_names(RowReader& from, profile::Profile& profile) {
  profile.strings = from.texts();
  take_each(from, profile.modules, [&] {
    profile::Module it{.path = from.text(), .build_id = from.text()};
    for (std::uint64_t* number : {&it.begin, &it.end, &it.file_offset}) *number = from.u64();
    it.pid = from.u32();
    it.is_kernel = from.u8() != 0;
    return it;
  });
  take_each(from, profile.functions, [&] {
    profile::Function it;
    for (std::string* text : {&it.name, &it.system_name, &it.file}) *text = from.text();
    it.start_line = from.u32();
    return it;
  });
  take_each(from, profile.locations, [&] {
    profile::Location it;
    it.module = from.u32();
    it.address = from.u64();
    it.function_begin = from.u64();
    it.interpreted = from.u8() != 0;
    take_each(from, it.lines, [&] { return profile::Line{.function = from.u32(), .line = from.u32()}; });
    return it;
  });
}

void take_samples(RowReader& from, profile::Profile& profile) {
  take_each(from, profile.events, [&] {
    profile::Event it;
    for (std::string* text : {&it.name, &it.unit, &it.counted}) *text = from.text();
    it.period = from.u64();
    it.per_time = from.u64();
    return it;
  });
  take_each(from, profile.label_sets, [&] {
    std::vector<profile::Label> set;
    take_each(from, set, [&] { return profile::Label{.key = from.u32(), .value = from.u32()}; });
    return set;
  });
  take_each(from, profile.samples, [&] {
    profile::Sample it;
    it.locations = from.numbers<std::uint32_t>();
    for (std::uint64_t* number : {&it.count, &it.value}) *number = from.u64();
    for (std::uint32_t* number : {&it.pid, &it.tid, &it.comm, &it.event, &it.labels}) *number = from.u32();
    it.end = from.u8();
    it.certainty = from.u8();
    it.times = from.u32();
    it.first_time = from.u64();
    return it;
  });
  take_each(from, profile.times, [&] { return profile::SampleTime{.begin = from.u64(), .lasted = from.u64()}; });
  profile.roots = from.numbers<std::uint32_t>();
  for (std::uint64_t* number : {&profile.start_unix_ns, &profile.duration_ns, &profile.lost}) *number = from.u64();
  profile.shown_event = from.u32();
  profile.ends_known = from.u8() != 0;
  profile.comments = from.texts();
}

bool names_what_is_there(const profile::Profile& profile) {
  const auto is_or_none = [](std::uint32_t index, const auto& list) {
    return index == profile::kNone || index < list.size();
  };
  const auto is_line = [&](const profile::Line& line) { return is_or_none(line.function, profile.functions); };
  const auto is_location = [&](const profile::Location& it) {
    return is_or_none(it.module, profile.modules) && std::ranges::all_of(it.lines, is_line);
  };
  const auto is_label = [&](const profile::Label& it) {
    return it.key < profile.strings.size() && it.value < profile.strings.size();
  };
  const auto is_sample = [&](const profile::Sample& it) {
    return is_or_none(it.comm, profile.strings) && it.event < profile.events.size() &&
           it.labels < profile.label_sets.size() && it.first_time <= profile.times.size() &&
           it.times <= profile.times.size() - it.first_time &&
           std::ranges::all_of(it.locations, [&](std::uint32_t at) { return at < profile.locations.size(); });
  };
  return profile.shown_event < profile.events.size() && !profile.label_sets.empty() &&
         (profile.roots.empty() || profile.roots.size() == profile.label_sets.size()) &&
         std::ranges::all_of(profile.roots, [&](std::uint32_t at) { return is_or_none(at, profile.strings); }) &&
         std::ranges::all_of(profile.locations, is_location) &&
         std::ranges::all_of(profile.label_sets, [&](const auto& set) { return std::ranges::all_of(set, is_label); }) &&
         std::ranges::all_of(profile.samples, is_sample);
}

}  // namespace

Expected<std::string> pack_batch(const OwnedBatch& batch) {
  BatchBytes bytes;
  bytes.text(kPackedMark);
  bytes.text(batch.id.host);
  for (const std::uint64_t number :
       {batch.id.agent_start_ns, batch.id.sequence, batch.begin_ns, batch.end_ns, batch.samples})
    bytes.number(number);
  bytes.each(batch.scales, [&](std::uint64_t scale) { bytes.number(scale); });
  put_names(bytes, batch.profile);
  put_samples(bytes, batch.profile);
  std::string packed;
  TextWriter out(&packed);
  exporter::GzipWriter gzip(out);
  gzip.write(bytes.bytes());
  if (const auto finished = gzip.finish(); !finished) return Failure(finished.error());
  return packed;
}

Expected<OwnedBatch> unpack_batch(std::string_view bytes) {
  const auto plain =
      exporter::gunzip({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, kMostPackedBytes);
  if (!plain) return Failure(plain.error());
  RowReader from({reinterpret_cast<const char*>(plain->data()), plain->size()});
  if (from.text() != kPackedMark) return fail(ErrorCode::kUnsupported, kNoPackedBatch, 0);
  OwnedBatch batch;
  batch.id.host = from.text();
  for (std::uint64_t* number :
       {&batch.id.agent_start_ns, &batch.id.sequence, &batch.begin_ns, &batch.end_ns, &batch.samples})
    *number = from.u64();
  take_each(from, batch.scales, [&] { return from.u64(); });
  take_names(from, batch.profile);
  take_samples(from, batch.profile);
  if (!from.is_good() || from.has_more() || !names_what_is_there(batch.profile))
    return fail(ErrorCode::kMalformed, kNoPackedBatch, 0);
  return batch;
}

}  // namespace windlass::store
