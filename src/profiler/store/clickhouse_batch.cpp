#include "profiler/store/clickhouse_batch.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "profiler/store/batch_rows.h"
#include "profiler/store/clickhouse_schema.h"
#include "profiler/store/clickhouse_wire.h"

namespace windlass::store {

namespace {

constexpr std::uint64_t kMostSeconds = 0xffffffff;

std::uint64_t grouped_id(std::uint64_t group, const HashBytes& hash) {
  return group << kIdRestBits | (id_of(hash) & ((std::uint64_t{1} << kIdRestBits) - 1));
}

std::uint64_t event_id(const profile::Event& event) {
  return id_of(ContentHash().add(event.name).add(event.unit).add(event.counted).add(event.period).bytes());
}

// In the order of the table, so that the server need not sort.
struct SampleKey {
  std::uint8_t level;
  std::uint64_t event, service, labels, stack;
  std::uint16_t second;
  std::uint8_t end, certainty;
  auto operator<=>(const SampleKey&) const = default;
};

class Encoding {
 public:
  Encoding(const Batch& batch, const BatchRows& rows, const KnownContents& known)
      : batch_(batch), profile_(batch.profile), rows_(rows), known_(known), hashes_(batch.profile) {
    const std::uint64_t seconds = std::min(batch.begin_ns / kSecondNs, kMostSeconds);
    made_.hour = static_cast<std::uint32_t>(seconds / kHourSeconds * kHourSeconds);
    second_ = static_cast<std::uint16_t>(seconds % kHourSeconds);
    made_.period = static_cast<std::uint32_t>(seconds / kPeriodSeconds);
    made_.id = batch_id(batch.id);
  }

  Expected<ClickhouseBatch> encode() {
    add_events();
    add_recording();
    add_label_sets();
    if (const auto added = add_rows(); !added) return Failure(added.error());
    add_stacks();
    add_frames();
    write_samples();
    return std::move(made_);
  }

 private:
  // True the first time, if the server does not have it.
  bool is_new(std::uint64_t id) {
    if (known_.has(id) || !new_.insert(id).second) return false;
    made_.known_ids.push_back(id);
    return true;
  }
  template <typename Value>
  [[nodiscard]] static std::vector<Value> same(std::size_t rows, Value value) {
    return std::vector<Value>(rows, value);
  }
  void add(const char* table, NativeBlock& block) { made_.contents.push_back({table, block.take()}); }

  void add_events() {
    std::vector<std::uint64_t> ids, periods;
    std::vector<std::string> names, units, counted;
    for (const profile::Event& event : profile_.events) {
      events_.push_back(event_id(event));
      if (!is_new(events_.back())) continue;
      ids.push_back(events_.back());
      names.push_back(event.name);
      units.push_back(event.unit);
      counted.push_back(event.counted);
      periods.push_back(event.period);
    }
    if (ids.empty()) return;
    NativeBlock block(5, ids.size());
    block.numbers("event", "UInt64", ids);
    block.texts("name", names);
    block.texts("unit", units);
    block.texts("counted", counted);
    block.numbers("per_sample", "UInt64", periods);
    add("events", block);
  }

  void add_recording() {
    const std::uint64_t shown = events_[profile_.shown_event];
    ContentHash hash;
    hash.add(shown).add(std::uint64_t{profile_.ends_known}).add(std::uint64_t{events_.size()});
    for (const std::uint64_t event : events_) hash.add(event);
    for (const std::string& comment : profile_.comments) hash.add(comment);
    recording_ = id_of(hash.bytes());
    if (!is_new(recording_)) return;
    NativeBlock block(6, 1);
    block.numbers("recording", "UInt64", same(1, recording_));
    block.numbers("period", "UInt32", same(1, made_.period));
    block.arrays("events", "Array(UInt64)", {events_.size()}, events_);
    block.numbers("shown", "UInt64", same(1, shown));
    block.numbers("ends_known", "UInt8", same<std::uint8_t>(1, profile_.ends_known));
    block.text_arrays("comments", {profile_.comments.size()}, profile_.comments);
    add("recordings", block);
  }

  void add_label_sets() {
    std::vector<std::uint64_t> ids, ends;
    std::vector<std::uint32_t> pids, tids;
    std::vector<std::uint8_t> has_thread;
    std::vector<std::string> hosts, processes, threads, keys, values;
    for (const LabelSet& set : rows_.label_sets) {
      const std::uint64_t id = id_of(hash_of(set, all_labels(set)));
      label_sets_.push_back(id);
      services_.push_back(service_id(set.process));
      if (!is_new(id)) continue;
      ids.push_back(id);
      hosts.push_back(set.host);
      processes.push_back(set.process);
      has_thread.push_back(set.thread.has_value());
      threads.push_back(set.thread.value_or(""));
      pids.push_back(set.pid);
      tids.push_back(set.tid);
      for (const Label& label : set.labels) {
        keys.push_back(label.key);
        values.push_back(label.value);
      }
      ends.push_back(keys.size());
    }
    if (ids.empty()) return;
    NativeBlock block(10, ids.size());
    block.numbers("labels", "UInt64", ids);
    block.numbers("period", "UInt32", same(ids.size(), made_.period));
    block.texts("host", hosts);
    block.texts("process", processes);
    block.numbers("has_thread", "UInt8", has_thread);
    block.texts("thread", threads);
    block.numbers("pid", "UInt32", pids);
    block.numbers("tid", "UInt32", tids);
    block.text_arrays("keys", ends, keys);
    block.text_arrays("values", ends, values);
    add("label_sets", block);
  }

  // Adds up what is equal in the store: the stacks of two locations with equal contents are one.
  Expected<void> add_rows() {
    const auto minute = static_cast<std::uint16_t>(second_ / 60 * 60);
    for (const BatchRow& row : rows_.rows) {
      const std::uint64_t service = services_[row.labels];
      const std::uint64_t stack = grouped_id(service & 0xfff, hashes_.stack(rows_.stacks[row.stack]));
      if (is_new(stack)) new_stacks_.emplace_back(stack, row.stack);
      SampleKey key{kRawLevel, events_[row.event], service, label_sets_[row.labels], stack, second_,
                    row.end,   row.certainty};
      if (!add_to(sums_[key], row.sums)) return fail(ErrorCode::kLimit, kTooLargeSums, 0);
      key.level = kMinuteLevel;
      key.labels = 0;
      key.second = minute;
      if (!add_to(sums_[key], row.sums)) return fail(ErrorCode::kLimit, kTooLargeSums, 0);
    }
    const std::uint64_t host = service_id(batch_.id.host);
    sums_[{kBatchLevel, 0, host, recording_, made_.id, second_, 0, 0}] = {1, profile_.lost};
    sums_[{kTimesLevel, 0, host, recording_, made_.id, second_, 0, 0}] = {
        batch_.end_ns - std::min(batch_.begin_ns, batch_.end_ns), profile_.duration_ns};
    return {};
  }

  void add_stacks() {
    if (new_stacks_.empty()) return;
    std::vector<std::uint64_t> ids, ends, frames;
    for (const auto& [id, index] : new_stacks_) {
      ids.push_back(id);
      for (const std::uint32_t location : rows_.stacks[index]) {
        frames.push_back(grouped_id(id >> kIdRestBits, hashes_.frame(location)));
        if (is_new(frames.back())) new_frames_.emplace_back(frames.back(), location);
      }
      ends.push_back(frames.size());
    }
    NativeBlock block(3, ids.size());
    block.numbers("stack", "UInt64", ids);
    block.numbers("period", "UInt32", same(ids.size(), made_.period));
    block.arrays("frames", "Array(UInt64)", ends, frames);
    add("stacks", block);
  }

  // A column of the modules of the new frames.
  template <typename Value, typename Member>
  std::vector<Value> of_modules(Member member) {
    static const profile::Module kNoModule{};
    std::vector<Value> values;
    for (const auto& [id, location] : new_frames_) {
      const std::uint32_t module = profile_.locations[location].module;
      values.push_back(
          static_cast<Value>(member(module < profile_.modules.size() ? profile_.modules[module] : kNoModule)));
    }
    return values;
  }
  template <typename Value, typename Member>
  std::vector<Value> of_locations(Member member) {
    std::vector<Value> values;
    for (const auto& [id, location] : new_frames_)
      values.push_back(static_cast<Value>(member(profile_.locations[location])));
    return values;
  }
  // A column of arrays: an element each line.
  template <typename Value, typename Member>
  std::vector<Value> of_lines(Member member) {
    static const profile::Function kNoFunction{};
    std::vector<Value> values;
    for (const auto& [id, location] : new_frames_)
      for (const profile::Line& line : profile_.locations[location].lines) {
        const bool has = line.function < profile_.functions.size();
        values.push_back(static_cast<Value>(member(line, has ? profile_.functions[line.function] : kNoFunction, has)));
      }
    return values;
  }

  void add_frames() {
    if (new_frames_.empty()) return;
    using profile::Function, profile::Line, profile::Location, profile::Module;
    std::vector<std::uint64_t> ids, ends;
    for (const auto& [id, location] : new_frames_) {
      ids.push_back(id);
      ends.push_back((ends.empty() ? 0 : ends.back()) + profile_.locations[location].lines.size());
    }
    const std::size_t rows = ids.size();
    NativeBlock block(20, rows);
    block.numbers("frame", "UInt64", ids);
    block.numbers("period", "UInt32", same(rows, made_.period));
    block.numbers("ver", "UInt64", same<std::uint64_t>(rows, 0));
    block.numbers("has_module", "UInt8",
                  of_locations<std::uint8_t>([&](const Location& it) { return it.module < profile_.modules.size(); }));
    block.texts("path", of_modules<std::string>([](const Module& it) { return it.path; }));
    block.texts("build_id", of_modules<std::string>([](const Module& it) { return it.build_id; }));
    block.numbers("begin", "UInt64", of_modules<std::uint64_t>([](const Module& it) { return it.begin; }));
    block.numbers("end", "UInt64", of_modules<std::uint64_t>([](const Module& it) { return it.end; }));
    block.numbers("file_offset", "UInt64", of_modules<std::uint64_t>([](const Module& it) { return it.file_offset; }));
    block.numbers("pid", "UInt32", of_modules<std::uint32_t>([](const Module& it) { return it.pid; }));
    block.numbers("is_kernel", "UInt8", of_modules<std::uint8_t>([](const Module& it) { return it.is_kernel; }));
    block.numbers("address", "UInt64", of_locations<std::uint64_t>([](const Location& it) { return it.address; }));
    block.numbers("function_begin", "UInt64",
                  of_locations<std::uint64_t>([](const Location& it) { return it.function_begin; }));
    block.numbers("interpreted", "UInt8",
                  of_locations<std::uint8_t>([](const Location& it) { return it.interpreted; }));
    block.text_arrays("functions", ends,
                      of_lines<std::string>([](const Line&, const Function& it, bool) { return it.name; }));
    block.text_arrays("system_names", ends,
                      of_lines<std::string>([](const Line&, const Function& it, bool) { return it.system_name; }));
    block.text_arrays("files", ends,
                      of_lines<std::string>([](const Line&, const Function& it, bool) { return it.file; }));
    block.arrays("start_lines", "Array(UInt32)", ends,
                 of_lines<std::uint32_t>([](const Line&, const Function& it, bool) { return it.start_line; }));
    block.arrays("lines", "Array(UInt32)", ends,
                 of_lines<std::uint32_t>([](const Line& line, const Function&, bool) { return line.line; }));
    block.arrays("has_function", "Array(UInt8)", ends,
                 of_lines<std::uint8_t>([](const Line&, const Function&, bool has) { return has; }));
    add("frames", block);
  }

  template <typename Value, typename Member>
  std::vector<Value> of_samples(Member member) const {
    std::vector<Value> values;
    values.reserve(sums_.size());
    for (const auto& [key, sums] : sums_) values.push_back(member(key, sums));
    return values;
  }
  void write_samples() {
    using Key = SampleKey;
    NativeBlock block(11, sums_.size());
    block.numbers("level", "UInt8", of_samples<std::uint8_t>([](const Key& key, const Sums&) { return key.level; }));
    block.numbers("event", "UInt64", of_samples<std::uint64_t>([](const Key& key, const Sums&) { return key.event; }));
    block.numbers("service", "UInt64",
                  of_samples<std::uint64_t>([](const Key& key, const Sums&) { return key.service; }));
    block.numbers("hour", "UInt32", same(sums_.size(), made_.hour));
    block.numbers("labels", "UInt64",
                  of_samples<std::uint64_t>([](const Key& key, const Sums&) { return key.labels; }));
    block.numbers("stack", "UInt64", of_samples<std::uint64_t>([](const Key& key, const Sums&) { return key.stack; }));
    block.numbers("second", "UInt16",
                  of_samples<std::uint16_t>([](const Key& key, const Sums&) { return key.second; }));
    block.numbers("end", "UInt8", of_samples<std::uint8_t>([](const Key& key, const Sums&) { return key.end; }));
    block.numbers("certainty", "UInt8",
                  of_samples<std::uint8_t>([](const Key& key, const Sums&) { return key.certainty; }));
    block.numbers("count", "UInt64",
                  of_samples<std::uint64_t>([](const Key&, const Sums& sums) { return sums.count; }));
    block.numbers("value", "UInt64",
                  of_samples<std::uint64_t>([](const Key&, const Sums& sums) { return sums.value; }));
    made_.samples = block.take();
  }

  const Batch& batch_;
  const profile::Profile& profile_;
  const BatchRows& rows_;
  const KnownContents& known_;
  BatchHashes hashes_;
  ClickhouseBatch made_;
  std::uint16_t second_ = 0;
  std::uint64_t recording_ = 0;
  std::vector<std::uint64_t> events_, label_sets_, services_;        // ids; a service of each label set
  std::vector<std::pair<std::uint64_t, std::uint32_t>> new_stacks_;  // ids, and indexes into the rows' stacks
  std::vector<std::pair<std::uint64_t, std::uint32_t>> new_frames_;  // ids, and locations
  std::unordered_set<std::uint64_t> new_;
  std::map<SampleKey, Sums> sums_;
};

}  // namespace

std::uint64_t id_of(const HashBytes& hash) {
  std::uint64_t id = 0;
  std::memcpy(&id, hash.data(), sizeof id);
  return id;
}

std::uint64_t service_id(std::string_view name) { return id_of(ContentHash().add(name).bytes()); }

std::uint64_t batch_id(const BatchId& id) {
  return id_of(ContentHash().add(id.host).add(id.agent_start_ns).add(id.sequence).bytes());
}

void KnownContents::begin(std::uint32_t period) {
  if (std::exchange(period_, period) != period) ids_.clear();
}

void KnownContents::add(const std::vector<std::uint64_t>& ids) {
  if (ids_.size() + ids.size() > kMost) ids_.clear();
  ids_.insert(ids.begin(), ids.end());
}

Expected<ClickhouseBatch> encode(const Batch& batch, const KnownContents& known) {
  const auto rows = rows_of(batch);
  if (!rows) return Failure(rows.error());
  return Encoding(batch, *rows, known).encode();
}

}  // namespace windlass::store
