// Series, stacks and labels of a range of time; frames are in clickhouse_frames.cpp.
#include "profiler/store/clickhouse_query.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "profiler/store/batch_rows.h"
#include "profiler/store/clickhouse_batch.h"
#include "profiler/store/clickhouse_schema.h"
#include "profiler/store/clickhouse_wire.h"
#include "profiler/store/series_steps.h"

namespace windlass::store {

namespace {

constexpr std::uint64_t kEndOfTime = 0xffffffff;  // the largest number of seconds
constexpr std::uint64_t kMinute = 60;

// Sums of 64 bits wrap in ClickHouse, so halves are added up.
constexpr std::string_view kSumColumns =
    "sum(bitShiftRight(count, 32)), sum(bitAnd(count, 0xffffffff)), sum(bitShiftRight(value, 32)), sum(bitAnd(value, "
    "0xffffffff))";

bool take_sum(RowReader& row, std::uint64_t& sum) {
  const std::uint64_t high = row.u64(), low = row.u64();
  return high <= 0xffffffff && !__builtin_add_overflow(high << 32, low, &sum);
}
// False: more than 64 bits.
bool take_sums(RowReader& row, Sums& sums) {
  const bool counts = take_sum(row, sums.count), values = take_sum(row, sums.value);
  return counts && values;
}

// Of begins of intervals, in whole seconds; `to` is behind the range.
struct Seconds {
  std::uint64_t from = 0, to = 0;
  [[nodiscard]] bool are_minutes() const { return from % kMinute == 0 && (to % kMinute == 0 || to == kEndOfTime); }
  // The whole minutes within; empty if there is none.
  [[nodiscard]] Seconds minutes() const {
    const std::uint64_t first = (from + kMinute - 1) / kMinute * kMinute;
    const std::uint64_t behind = to == kEndOfTime ? to : to / kMinute * kMinute;
    return first < behind ? Seconds{first, behind} : Seconds{to, to};
  }
};
std::uint64_t seconds_up(std::uint64_t ns) {
  return std::min(ns / kSecondNs + (ns % kSecondNs != 0 ? 1 : 0), kEndOfTime);
}
Seconds seconds_of(std::uint64_t from, std::uint64_t to) { return {seconds_up(from), seconds_up(to)}; }

std::string at_level(ClickhouseLevel level, const Seconds& range) {
  return "level = " + std::to_string(level) +
         " AND hour >= " + std::to_string(range.from / kHourSeconds * kHourSeconds) +
         " AND hour <= " + std::to_string(range.to) + " AND hour + second >= " + std::to_string(range.from) +
         " AND hour + second < " + std::to_string(range.to);
}

// Of a label set. The store's own labels hide those of the same name.
std::string has_label(const Label& label) {
  const std::string value = sql_text(label.value);
  if (label.key == kHostLabel) return "host = " + value;
  if (label.key == kProcessLabel) return "process = " + value;
  if (label.key == kThreadLabel) return "has_thread AND thread = " + value;
  if (label.key == kPidLabel) return "toString(pid) = " + value;
  if (label.key == kTidLabel) return "toString(tid) = " + value;
  return "arrayExists((k, v) -> k = " + sql_text(label.key) + " AND v = " + value + ", keys, values)";
}

// The values of a label, as a column of label_sets; nothing: an array of them.
std::optional<std::string> column_of(std::string_view label) {
  if (label == kHostLabel || label == kProcessLabel || label == kThreadLabel) return std::string(label);
  if (label == kPidLabel || label == kTidLabel) return "toString(" + std::string(label) + ")";
  return std::nullopt;
}
std::string value_column(std::string_view label) {
  if (const auto column = column_of(label)) return *column;
  return "arrayJoin(arrayFilter((v, k) -> k = " + sql_text(label) + ", values, keys))";
}
std::string with_value(std::string_view label) { return label == kThreadLabel ? " WHERE has_thread" : ""; }

using Events = std::unordered_map<std::uint64_t, profile::Event>;

Expected<Events> all_events(ClickhouseServer& server) {
  const auto answer = server.query("SELECT event, name, unit, counted, per_sample FROM events FORMAT RowBinary");
  if (!answer) return Failure(answer.error());
  Events events;
  for (RowReader row(*answer); row.has_more();) {
    const std::uint64_t id = row.u64();
    profile::Event event;
    event.name = row.text();
    event.unit = row.text();
    event.counted = row.text();
    event.period = row.u64();
    if (!row.is_good()) return fail(ErrorCode::kMalformed, kOtherColumns, 0);
    events[id] = std::move(event);
  }
  return events;
}

// What all queries of samples share.
class SampleQuery {
 public:
  SampleQuery(ClickhouseServer& server, const Filter& filter, std::uint64_t from, std::uint64_t to)
      : server_(server), filter_(filter), range_(seconds_of(from, to)) {}

  Expected<void> prepare() {
    auto events = all_events(server_);
    if (!events) return Failure(events.error());
    events_ = std::move(*events);
    return {};
  }
  // FROM and WHERE. The rollup does if nothing depends on label sets, and all times are whole minutes.
  [[nodiscard]] std::string from_samples(bool without_labels) const {
    const bool is_whole = range_.are_minutes() && without_labels && only_services();
    return " FROM samples WHERE " + at_level(is_whole ? kMinuteLevel : kRawLevel, range_) + conditions();
  }
  // The same without label sets: whole minutes by the rollup, what is left at both ends by the samples.
  [[nodiscard]] std::string from_rollup() const {
    const Seconds whole = range_.minutes();
    std::string parts = "(" + at_level(kMinuteLevel, whole) + ")";
    for (const Seconds& rest : {Seconds{range_.from, whole.from}, Seconds{whole.to, range_.to}})
      if (rest.from < rest.to) parts += " OR (" + at_level(kRawLevel, rest) + ")";
    return " FROM samples WHERE (" + parts + ")" + conditions();
  }
  // One label set for a process: of many hosts there are many more. Who chooses a host or a thread looks at few.
  [[nodiscard]] bool adds_threads_up() const {
    return filter_.process_is_enough && std::ranges::none_of(filter_.labels, [](const Label& label) {
             return label.key == kHostLabel || label.key == kPidLabel || label.key == kTidLabel ||
                    label.key == kThreadLabel;
           });
  }
  [[nodiscard]] bool may_use_rollup() const { return filter_.process_is_enough && only_services(); }
  // Nothing depends on label sets.
  [[nodiscard]] bool only_services() const {
    return std::ranges::all_of(filter_.labels, [](const Label& label) { return label.key == kProcessLabel; });
  }
  // The id that all samples have; nothing: there may be several.
  [[nodiscard]] std::optional<std::uint64_t> only_event() const {
    const auto ids = chosen_events();
    return !filter_.event.empty() && ids.size() == 1 ? std::optional(ids.front()) : std::nullopt;
  }
  [[nodiscard]] std::optional<std::uint64_t> only_service() const {
    const auto chosen = std::ranges::find(filter_.labels, kProcessLabel, &Label::key);
    return chosen != filter_.labels.end() ? std::optional(service_id(chosen->value)) : std::nullopt;
  }
  [[nodiscard]] const Events& events() const { return events_; }
  [[nodiscard]] const Seconds& range() const { return range_; }

 private:
  [[nodiscard]] std::vector<std::uint64_t> chosen_events() const {
    std::vector<std::uint64_t> ids;
    for (const auto& [id, event] : events_)
      if (event.name == filter_.event) ids.push_back(id);
    return ids;
  }
  [[nodiscard]] std::string conditions() const {
    std::string sql, sets;
    if (!filter_.event.empty()) sql += " AND event IN " + sql_ids(chosen_events());
    for (const Label& label : filter_.labels) {
      if (label.key == kProcessLabel) sql += " AND service = " + std::to_string(service_id(label.value));
      sets += (sets.empty() ? "" : " AND ") + has_label(label);
    }
    if (!only_services()) sql += " AND labels GLOBAL IN (SELECT labels FROM label_sets WHERE " + sets + ")";
    return sql;
  }

  ClickhouseServer& server_;
  const Filter& filter_;
  Seconds range_;
  Events events_;
};

Expected<std::vector<std::string>> sorted_texts(ClickhouseServer& server, const std::string& sql) {
  const auto answer = server.query(sql + " FORMAT RowBinary");
  if (!answer) return Failure(answer.error());
  std::set<std::string> texts;
  for (RowReader row(*answer); row.has_more();) texts.insert(row.text());
  return std::vector<std::string>(texts.begin(), texts.end());
}

// Stacks of a range, while rows are read.
class StackReader {
 public:
  StackReader(ClickhouseServer& server, const Filter& filter, std::uint64_t from, std::uint64_t to)
      : server_(server), filter_(filter), query_(server, filter, from, to) {}

  Expected<Stacks> ask() {
    if (const auto prepared = query_.prepare(); !prepared) return Failure(prepared.error());
    for (const auto part : {&StackReader::take_batches, &StackReader::take_samples, &StackReader::take_labels})
      if (const auto taken = (this->*part)(); !taken) return Failure(taken.error());
    return std::move(made_);
  }

 private:
  struct Recording {
    std::vector<std::uint64_t> events;
    std::uint64_t shown = 0;
    bool ends_known = true;
    std::vector<std::string> comments;
  };

  Expected<std::uint32_t> event(std::uint64_t id) {
    const auto known = query_.events().find(id);
    if (known == query_.events().end()) return fail(ErrorCode::kMalformed, kOtherColumns, 0);
    const auto [place, is_new] = events_.try_emplace(id, static_cast<std::uint32_t>(made_.events.size()));
    if (is_new) made_.events.push_back(known->second);
    return place->second;
  }

  Expected<std::unordered_map<std::uint64_t, Recording>> recordings(const std::vector<std::uint64_t>& ids) {
    const auto answer = server_.query(
        "SELECT recording, events, shown, ends_known, comments FROM recordings WHERE "
        "recording IN " +
        sql_ids(ids) + " FORMAT RowBinary");
    if (!answer) return Failure(answer.error());
    std::unordered_map<std::uint64_t, Recording> all;
    for (RowReader row(*answer); row.has_more();) {
      const std::uint64_t id = row.u64();
      Recording& to = all[id];
      to.events = row.numbers<std::uint64_t>();
      to.shown = row.u64();
      to.ends_known = row.u8() != 0;
      to.comments = row.texts();
      if (!row.is_good()) return fail(ErrorCode::kMalformed, kOtherColumns, 0);
    }
    return all;
  }

  // The two levels of a recording's batches.
  Expected<void> take_batches() {
    std::string hosts;
    for (const Label& label : filter_.labels)
      if (label.key == kHostLabel) hosts += " AND service = " + std::to_string(service_id(label.value));
    const auto answer = server_.query(
        "SELECT labels, min(hour + second) AS begin, sumIf(count, level = 2), sumIf(value, level = 2), sumIf(value, "
        "level "
        "= 3) FROM samples WHERE ((" +
        at_level(kBatchLevel, query_.range()) + ") OR (" + at_level(kTimesLevel, query_.range()) + "))" + hosts +
        " GROUP BY labels ORDER BY begin, labels FORMAT RowBinary");
    if (!answer) return Failure(answer.error());
    struct Row {
      std::uint64_t recording, begin, intervals, lost, duration;
    };
    std::vector<Row> rows;
    std::vector<std::uint64_t> ids;
    for (RowReader row(*answer); row.has_more();) {
      rows.push_back({row.u64(), row.u64(), row.u64(), row.u64(), row.u64()});
      ids.push_back(rows.back().recording);
      if (!row.is_good()) return fail(ErrorCode::kMalformed, kOtherColumns, 0);
    }
    if (rows.empty()) return {};
    auto known = recordings(ids);
    if (!known) return Failure(known.error());
    made_.begin_ns = rows.front().begin * kSecondNs;
    for (const Row& row : rows) {
      made_.intervals += row.intervals;
      made_.lost += row.lost;
      made_.duration_ns += row.duration;
      if (const auto taken = take_recording((*known)[row.recording]); !taken) return taken;
    }
    const auto shown = event((*known)[rows.front().recording].shown);
    if (!shown) return Failure(shown.error());
    made_.shown_event = *shown;
    return {};
  }
  Expected<void> take_recording(const Recording& recording) {
    made_.ends_known &= recording.ends_known;
    for (const std::uint64_t id : recording.events)
      if (const auto place = event(id); !place) return Failure(place.error());
    for (const std::string& comment : recording.comments)
      if (std::ranges::find(made_.comments, comment) == made_.comments.end()) made_.comments.push_back(comment);
    return {};
  }

  struct Key {
    std::string column, grouped;
  };
  static Key key_of(const std::string& name, std::optional<std::uint64_t> only) {
    if (only) return {"toUInt64(" + std::to_string(*only) + ")", ""};
    return {name, name + ", "};
  }
  Expected<void> take_samples() {
    // What all rows have in common is no key: the server groups in three quarters of the time.
    const auto event_key = key_of("event", query_.only_event());
    const auto by = query_.adds_threads_up() ? key_of("service", query_.only_service()) : Key{"labels", "labels, "};
    const auto answer = server_.query(
        "SELECT " + event_key.column + ", " + by.column + ", stack, end, certainty, " + std::string(kSumColumns) +
        (query_.may_use_rollup() ? query_.from_rollup() : query_.from_samples(false)) + " GROUP BY " +
        event_key.grouped + by.grouped + "stack, end, certainty FORMAT RowBinary");
    if (!answer) return Failure(answer.error());
    for (RowReader row(*answer); row.has_more();) {
      const auto of = event(row.u64());
      if (!of) return Failure(of.error());
      StackSums stack{.event = *of, .labels = 0, .stack = 0, .end = 0, .certainty = 0, .sums = {}};
      const std::uint64_t labels = row.u64();
      stack.labels = sets_.try_emplace(labels, static_cast<std::uint32_t>(sets_.size())).first->second;
      stack.stack = row.u64();
      stack.end = row.u8();
      stack.certainty = row.u8();
      if (!take_sums(row, stack.sums)) return fail(ErrorCode::kLimit, kTooLargeSums, 0);
      if (!row.is_good()) return fail(ErrorCode::kMalformed, kOtherColumns, 0);
      made_.stacks.push_back(stack);
    }
    return {};
  }

  Expected<void> take_labels() {
    made_.label_sets.resize(sets_.size());
    if (sets_.empty()) return {};
    if (query_.adds_threads_up()) return take_processes();
    std::vector<std::uint64_t> ids;
    for (const auto& [id, place] : sets_) ids.push_back(id);
    const auto answer = server_.query(
        "SELECT labels, host, process, has_thread, thread, pid, tid, keys, values FROM label_sets WHERE "
        "labels IN " +
        sql_ids(ids) + " FORMAT RowBinary");
    if (!answer) return Failure(answer.error());
    std::set<std::uint64_t> found;
    for (RowReader row(*answer); row.has_more();) {
      const std::uint64_t id = row.u64();
      LabelSet set;
      set.host = row.text();
      set.process = row.text();
      const bool has_thread = row.u8() != 0;
      std::string thread = row.text();
      if (has_thread) set.thread = std::move(thread);
      set.pid = row.u32();
      set.tid = row.u32();
      auto keys = row.texts(), values = row.texts();
      const auto place = sets_.find(id);
      if (!row.is_good() || keys.size() != values.size() || place == sets_.end())
        return fail(ErrorCode::kMalformed, kOtherColumns, 0);
      for (std::size_t i = 0; i < keys.size(); ++i) set.labels.push_back({std::move(keys[i]), std::move(values[i])});
      made_.label_sets[place->second] = std::move(set);
      found.insert(id);
    }
    if (found.size() != sets_.size()) return fail(ErrorCode::kMalformed, kNoSuchLabels, 0);
    return {};
  }

  // Label sets that name the process alone. `sets_` are services.
  Expected<void> take_processes() {
    std::set<std::string> names;
    for (const Label& label : filter_.labels)
      if (label.key == kProcessLabel) names.insert(label.value);
    if (names.empty()) {
      auto all = sorted_texts(server_, "SELECT DISTINCT process FROM label_sets");
      if (!all) return Failure(all.error());
      names.insert(all->begin(), all->end());
    }
    std::size_t found = 0;
    for (const std::string& name : names) {
      const auto place = sets_.find(service_id(name));
      if (place == sets_.end()) continue;
      made_.label_sets[place->second] = {.host = {}, .process = name, .thread = name, .labels = {}};
      ++found;
    }
    if (found != sets_.size()) return fail(ErrorCode::kMalformed, kNoSuchLabels, 0);
    made_.comments.emplace_back("hosts and threads were added up");
    return {};
  }

  ClickhouseServer& server_;
  const Filter& filter_;
  SampleQuery query_;
  Stacks made_;
  std::unordered_map<std::uint64_t, std::uint32_t> events_, sets_;  // ids to places in `made_`
};

}  // namespace

Expected<std::optional<Extent>> ClickhouseQuery::extent() {
  const auto answer = server_.query(
      "SELECT min(hour + second), max((hour + second) * 1000000000 + count), max(count) FROM samples WHERE level "
      "= 3 HAVING count() > 0 FORMAT RowBinary");
  if (!answer) return Failure(answer.error());
  RowReader row(*answer);
  if (!row.has_more()) return std::optional<Extent>();
  const Extent extent{row.u64() * kSecondNs, row.u64(), row.u64()};
  if (!row.is_good()) return fail(ErrorCode::kMalformed, kOtherColumns, 0);
  return std::optional(extent);
}

Expected<std::vector<std::string>> ClickhouseQuery::labels() {
  auto keys = sorted_texts(server_, "SELECT DISTINCT arrayJoin(keys) FROM label_sets");
  if (!keys) return keys;
  const auto answer = server_.query("SELECT count(), max(has_thread) FROM label_sets FORMAT RowBinary");
  if (!answer) return Failure(answer.error());
  RowReader row(*answer);
  std::set<std::string> all(keys->begin(), keys->end());
  if (row.u64() != 0)
    for (const std::string_view key : {kHostLabel, kProcessLabel, kPidLabel, kTidLabel}) all.emplace(key);
  if (row.u8() != 0) all.emplace(kThreadLabel);
  return std::vector<std::string>(all.begin(), all.end());
}

Expected<std::vector<std::string>> ClickhouseQuery::values(std::string_view label) {
  return sorted_texts(server_, "SELECT DISTINCT " + value_column(label) + " FROM label_sets" + with_value(label));
}

Expected<std::vector<Series>> ClickhouseQuery::series(const Filter& filter, std::uint64_t from, std::uint64_t to,
                                                      std::uint64_t step) {
  const auto steps = steps_of(from, to, step);
  if (!steps) return Failure(steps.error());
  SampleQuery query(server_, filter, from, to);
  if (const auto prepared = query.prepare(); !prepared) return Failure(prepared.error());
  // A step is that of a second, or of a minute in the rollup.
  const bool are_minutes = step % (kMinute * kSecondNs) == 0 && from % (kMinute * kSecondNs) == 0;
  const std::string at =
      "intDiv((hour + second) * 1000000000 - " + std::to_string(from) + ", " + std::to_string(step) + ")";
  const auto answer = server_.query("SELECT toUInt64(" + at + ") AS at, event, " + std::string(kSumColumns) +
                                    query.from_samples(are_minutes) + " GROUP BY at, event FORMAT RowBinary");
  if (!answer) return Failure(answer.error());
  std::map<std::uint64_t, Series> by_event;
  for (RowReader row(*answer); row.has_more();) {
    const std::uint64_t place = row.u64(), id = row.u64();
    Sums sums;
    if (!take_sums(row, sums)) return fail(ErrorCode::kLimit, kTooLargeSums, place);
    const auto event = query.events().find(id);
    if (!row.is_good() || event == query.events().end() || place >= *steps)
      return fail(ErrorCode::kMalformed, kOtherColumns, 0);
    const auto [series, is_new] = by_event.try_emplace(id);
    if (is_new) series->second = {event->second, std::vector<Sums>(*steps)};
    series->second.steps[place] = sums;
  }
  std::vector<Series> list;
  for (auto& [id, series] : by_event) list.push_back(std::move(series));
  return list;
}

namespace {

constexpr std::string_view kHalves =
    "sum(bitShiftRight(count, 32)) AS a, sum(bitAnd(count, 0xffffffff)) AS b, sum(bitShiftRight(value, 32)) AS c, "
    "sum(bitAnd(value, 0xffffffff)) AS d";

// Rows of a value, an event and its sums. `value`: reads the first; nothing if the store does not know it.
template <typename Value>
Expected<std::vector<Total>> take_totals(std::string_view answer, const Events& events, Value value) {
  std::vector<Total> list;
  for (RowReader row(answer); row.has_more();) {
    std::optional<std::string> name = value(row);
    const auto event = events.find(row.u64());
    Total total;
    if (!take_sums(row, total.sums)) return fail(ErrorCode::kLimit, kTooLargeSums, 0);
    if (!row.is_good() || event == events.end()) return fail(ErrorCode::kMalformed, kOtherColumns, 0);
    if (!name) return fail(ErrorCode::kMalformed, kNoSuchLabels, 0);
    total.value = *std::move(name);
    total.event = event->second;
    list.push_back(std::move(total));
  }
  return list;
}

// Of each process, by the rollup: the number of its rows does not depend on hosts and threads.
Expected<std::vector<Total>> totals_of_processes(ClickhouseServer& server, const SampleQuery& query) {
  const auto answer = server.query("SELECT service, event, " + std::string(kHalves) + query.from_rollup() +
                                   " GROUP BY service, event FORMAT RowBinary");
  if (!answer) return Failure(answer.error());
  const auto names = sorted_texts(server, "SELECT DISTINCT process FROM label_sets");
  if (!names) return Failure(names.error());
  std::unordered_map<std::uint64_t, std::string> by_service;
  for (const std::string& name : *names) by_service[service_id(name)] = name;
  return take_totals(*answer, query.events(), [&](RowReader& row) {
    const auto name = by_service.find(row.u64());
    return name != by_service.end() ? std::optional(name->second) : std::nullopt;
  });
}

}  // namespace

Expected<std::vector<Total>> ClickhouseQuery::totals(std::string_view label, const Filter& filter, std::uint64_t from,
                                                     std::uint64_t to) {
  SampleQuery query(server_, filter, from, to);
  if (const auto prepared = query.prepare(); !prepared) return Failure(prepared.error());
  if (label == kProcessLabel && query.only_services()) return totals_of_processes(server_, query);
  // ClickHouse 20 and later ask for names of both sides.
  const auto answer =
      server_.query("SELECT value_of, event, sum(a), sum(b), sum(c), sum(d) FROM (SELECT labels, event, " +
                    std::string(kHalves) + query.from_samples(false) +
                    " GROUP BY labels, event) AS of_sets GLOBAL ALL INNER JOIN (SELECT DISTINCT labels, " +
                    value_column(label) + " AS value_of FROM label_sets" + with_value(label) +
                    ") AS names USING labels GROUP BY value_of, event FORMAT RowBinary");
  if (!answer) return Failure(answer.error());
  return take_totals(*answer, query.events(), [](RowReader& row) { return std::optional(row.text()); });
}

Expected<Stacks> ClickhouseQuery::stacks(const Filter& filter, std::uint64_t from, std::uint64_t to) {
  return StackReader(server_, filter, from, to).ask();
}

}  // namespace windlass::store
