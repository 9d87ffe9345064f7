// Series, stacks and labels of a range of time; frames are in sqlite_frames.cpp.
#include "profiler/store/sqlite_query.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "profiler/export/stacks.h"
#include "profiler/store/batch_rows.h"
#include "profiler/store/series_steps.h"
#include "profiler/store/sqlite_filter.h"
#include "profiler/store/sqlite_lists.h"
#include "profiler/store/sqlite_sums.h"

namespace windlass::store {

namespace {

Expected<std::vector<std::string>> texts_of(Statement& statement) {
  std::vector<std::string> texts;
  const auto all = each_row(statement, [&](const Statement& row) -> Expected<void> {
    texts.emplace_back(row.text(0));
    return {};
  });
  if (!all) return Failure(all.error());
  return texts;
}

Expected<std::unordered_map<std::uint64_t, profile::Event>> all_events(sqlite3* database) {
  auto statement = Statement::prepare(database, "SELECT id, name, unit, counted, period FROM events", false);
  if (!statement) return Failure(statement.error());
  std::unordered_map<std::uint64_t, profile::Event> events;
  const auto all = each_row(*statement, [&](const Statement& row) -> Expected<void> {
    events[row.number(0)] = {.name = std::string(row.text(1)),
                             .unit = std::string(row.text(2)),
                             .counted = std::string(row.text(3)),
                             .period = row.number(4)};
    return {};
  });
  if (!all) return Failure(all.error());
  return events;
}

Failure damaged() { return fail(ErrorCode::kMalformed, kDamaged, 0); }

// Stacks of a range, while rows are added up.
class StackQuery {
 public:
  StackQuery(sqlite3* database, const Filter& filter, std::uint64_t from, std::uint64_t to)
      : database_(database), filter_(filter), from_(from), to_(to) {}

  Expected<Stacks> ask() {
    auto events = all_events(database_);
    if (!events) return Failure(events.error());
    known_events_ = std::move(*events);
    for (const auto part : {&StackQuery::take_intervals, &StackQuery::take_samples, &StackQuery::take_labels})
      if (const auto taken = (this->*part)(); !taken) return Failure(taken.error());
    return std::move(made_);
  }

 private:
  struct Key {
    std::uint64_t event, labels, stack, end, certainty;
    bool operator==(const Key&) const = default;
  };
  struct HashOfKey {
    std::size_t operator()(const Key& key) const {
      const std::uint64_t small = key.event << 16 | key.end << 8 | key.certainty;
      return exporter::mix_hash(exporter::mix_hash(exporter::mix_hash(0, small), key.labels), key.stack);
    }
  };

  Expected<std::uint32_t> event(std::uint64_t id) {
    const auto known = known_events_.find(id);
    if (known == known_events_.end()) return damaged();
    const auto [place, is_new] = events_.try_emplace(id, static_cast<std::uint32_t>(made_.events.size()));
    if (is_new) made_.events.push_back(known->second);
    return place->second;
  }

  Expected<void> take_interval(const Statement& row) {
    if (made_.intervals++ == 0) made_.begin_ns = row.number(0);
    if (__builtin_add_overflow(made_.duration_ns, row.number(1), &made_.duration_ns))
      made_.duration_ns = ~std::uint64_t{0};
    if (__builtin_add_overflow(made_.lost, row.number(2), &made_.lost)) made_.lost = ~std::uint64_t{0};
    made_.ends_known &= row.number(3) != 0;
    const auto events = numbers_in(row.text(4));
    if (events.empty() || events.front() + 1 >= events.size()) return damaged();
    for (std::size_t i = 1; i < events.size(); ++i) {
      const auto place = event(events[i]);
      if (!place) return Failure(place.error());
      if (made_.intervals == 1 && i == events.front() + 1) made_.shown_event = *place;
    }
    for (std::string& comment : texts_in(row.text(5)))
      if (std::ranges::find(made_.comments, comment) == made_.comments.end())
        made_.comments.push_back(std::move(comment));
    return {};
  }
  Expected<void> take_intervals() {
    std::string sql =
        "SELECT begin_ns, duration_ns, lost, ends_known, events, comments FROM intervals WHERE begin_ns >= ? AND "
        "begin_ns < ?";
    for (const Label& label : filter_.labels)
      if (label.key == kHostLabel) sql += " AND host = ?";
    auto statement = Statement::prepare(database_, sql + " ORDER BY begin_ns, id", false);
    if (!statement) return Failure(statement.error());
    statement->bind(std::min(from_, kLastTime)).bind(std::min(to_, kLastTime));
    for (const Label& label : filter_.labels)
      if (label.key == kHostLabel) statement->bind(std::string_view(label.value));
    return each_row(*statement, [this](const Statement& row) { return take_interval(row); });
  }

  Expected<void> take_sample(const Statement& row) {
    const auto of = event(row.number(0));
    if (!of) return Failure(of.error());
    const Key key{*of, row.number(1), row.number(2), row.number(3), row.number(4)};
    const auto [place, is_new] = places_.try_emplace(key, made_.stacks.size());
    if (is_new) {
      const auto [labels, is_new_set] = sets_.try_emplace(key.labels, static_cast<std::uint32_t>(sets_.size()));
      made_.stacks.push_back({.event = *of,
                              .labels = labels->second,
                              .stack = key.stack,
                              .end = static_cast<std::uint8_t>(key.end),
                              .certainty = static_cast<std::uint8_t>(key.certainty),
                              .sums = {}});
    }
    if (!add_to(made_.stacks[place->second].sums, {row.number(5), row.number(6)}))
      return fail(ErrorCode::kLimit, kTooLargeSums, 0);
    return {};
  }
  Expected<void> take_samples() {
    auto statement =
        prepare_samples(database_, "s.event, s.label_set, s.stack, s.end, s.certainty, s.count, s.value", filter_);
    if (!statement) return Failure(statement.error());
    bind_filter(*statement, filter_, from_, to_);
    return each_row(*statement, [this](const Statement& row) { return take_sample(row); });
  }

  Expected<LabelSet> label_set(Statement& sets, Statement& strings, std::uint64_t id) {
    sets.reset();
    const auto found = sets.bind(id).step();
    if (!found) return Failure(found.error());
    if (!*found) return damaged();
    LabelSet set{.host = {}, .process = {}, .thread = {}, .pid = 0, .tid = 0, .labels = {}};
    set.pid = static_cast<std::uint32_t>(sets.number(3));
    set.tid = static_cast<std::uint32_t>(sets.number(4));
    std::vector<std::uint64_t> ids{sets.number(0), sets.number(1), sets.number(2)};
    const auto labels = numbers_in(sets.text(5));
    ids.insert(ids.end(), labels.begin(), labels.end());
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == 0 && i == 2) {
        texts.emplace_back();
        continue;
      }
      const auto text = string(strings, ids[i]);
      if (!text) return Failure(text.error());
      texts.push_back(*text);
    }
    set.host = texts[0];
    set.process = texts[1];
    if (ids[2] != 0) set.thread = texts[2];
    for (std::size_t i = 3; i + 1 < texts.size(); i += 2) set.labels.push_back({texts[i], texts[i + 1]});
    return set;
  }
  Expected<std::string> string(Statement& strings, std::uint64_t id) {
    const auto known = strings_.find(id);
    if (known != strings_.end()) return known->second;
    strings.reset();
    const auto found = strings.bind(id).step();
    if (!found) return Failure(found.error());
    if (!*found) return damaged();
    return strings_.emplace(id, strings.text(0)).first->second;
  }
  Expected<void> take_labels() {
    auto sets =
        Statement::prepare(database_, "SELECT host, process, thread, pid, tid, labels FROM label_sets WHERE id = ?");
    auto strings = Statement::prepare(database_, "SELECT text FROM strings WHERE id = ?");
    if (!sets) return Failure(sets.error());
    if (!strings) return Failure(strings.error());
    made_.label_sets.resize(sets_.size());
    for (const auto& [id, place] : sets_) {
      auto set = label_set(*sets, *strings, id);
      if (!set) return Failure(set.error());
      made_.label_sets[place] = std::move(*set);
    }
    return {};
  }

  sqlite3* database_;
  const Filter& filter_;
  std::uint64_t from_, to_;
  Stacks made_;
  std::unordered_map<std::uint64_t, profile::Event> known_events_;
  std::unordered_map<std::uint64_t, std::uint32_t> events_, sets_;  // ids to places in `made_`
  std::unordered_map<Key, std::size_t, HashOfKey> places_;          // in made_.stacks
  std::unordered_map<std::uint64_t, std::string> strings_;
};

}  // namespace

Expected<std::optional<Extent>> query_extent(sqlite3* database) {
  auto statement = Statement::prepare(
      database,
      "SELECT (SELECT begin_ns FROM intervals ORDER BY begin_ns LIMIT 1), (SELECT end_ns FROM intervals ORDER BY "
      "begin_ns DESC LIMIT 1), (SELECT max(end_ns - begin_ns) FROM (SELECT begin_ns, end_ns FROM intervals ORDER BY "
      "begin_ns DESC LIMIT 100))",
      false);
  if (!statement) return Failure(statement.error());
  const auto row = statement->step();
  if (!row) return Failure(row.error());
  if (!*row || statement->is_null(0)) return std::nullopt;
  return Extent{statement->number(0), statement->number(1), statement->number(2)};
}

Expected<std::vector<std::string>> query_labels(sqlite3* database) {
  auto statement = Statement::prepare(
      database, "SELECT text FROM strings WHERE id IN (SELECT DISTINCT key FROM set_labels) ORDER BY text", false);
  if (!statement) return Failure(statement.error());
  return texts_of(*statement);
}

Expected<std::vector<std::string>> query_values(sqlite3* database, std::string_view label) {
  auto statement = Statement::prepare(
      database,
      "SELECT text FROM strings WHERE id IN (SELECT DISTINCT value FROM set_labels WHERE key = (SELECT id FROM strings "
      "WHERE text = ?)) ORDER BY text",
      false);
  if (!statement) return Failure(statement.error());
  statement->bind(label);
  return texts_of(*statement);
}

Expected<std::vector<Series>> query_series(sqlite3* database, const Filter& filter, std::uint64_t from,
                                           std::uint64_t to, std::uint64_t step) {
  const auto steps = steps_of(from, to, step);
  if (!steps) return Failure(steps.error());
  const auto events = all_events(database);
  if (!events) return Failure(events.error());
  std::map<std::uint64_t, Series> by_event;
  const auto all = each_sums(database, filter, from, to, step, [&](const SumsRow& row) -> Expected<void> {
    const auto event = events->find(row.event);
    const std::uint64_t at = (row.at - from) / step;
    if (event == events->end() || at >= *steps) return damaged();
    const auto [series, is_new] = by_event.try_emplace(event->first);
    if (is_new) series->second = {event->second, std::vector<Sums>(*steps)};
    if (!add_to(series->second.steps[at], row.sums)) return fail(ErrorCode::kLimit, kTooLargeSums, at);
    return {};
  });
  if (!all) return Failure(all.error());
  std::vector<Series> list;
  for (auto& [id, series] : by_event) list.push_back(std::move(series));
  return list;
}

Expected<std::vector<Total>> query_totals(sqlite3* database, std::string_view label, const Filter& filter,
                                          std::uint64_t from, std::uint64_t to) {
  const auto events = all_events(database);
  if (!events) return Failure(events.error());
  auto values = Statement::prepare(database,
                                   "SELECT l.label_set, t.text FROM set_labels l JOIN strings t ON t.id = l.value "
                                   "WHERE l.key = (SELECT id FROM strings WHERE text = ?)",
                                   false);
  if (!values) return Failure(values.error());
  std::unordered_map<std::uint64_t, std::map<std::uint64_t, Sums>> by_set;
  const auto added = each_sums(database, filter, from, to, 0, [&](const SumsRow& row) -> Expected<void> {
    if (!events->contains(row.event)) return damaged();
    if (add_to(by_set[row.label_set][row.event], row.sums)) return {};
    return fail(ErrorCode::kLimit, kTooLargeSums, 0);
  });
  if (!added) return Failure(added.error());
  values->bind(label);
  std::map<std::pair<std::string, std::uint64_t>, Sums> by_value;
  const auto named = each_row(*values, [&](const Statement& row) -> Expected<void> {
    const auto set = by_set.find(row.number(0));
    if (set == by_set.end()) return {};
    for (const auto& [event, sums] : set->second)
      if (!add_to(by_value[{std::string(row.text(1)), event}], sums)) return fail(ErrorCode::kLimit, kTooLargeSums, 0);
    return {};
  });
  if (!named) return Failure(named.error());
  std::vector<Total> list;
  for (const auto& [key, sums] : by_value) list.push_back({key.first, events->at(key.second), sums});
  return list;
}

Expected<Stacks> query_stacks(sqlite3* database, const Filter& filter, std::uint64_t from, std::uint64_t to) {
  return StackQuery(database, filter, from, to).ask();
}

}  // namespace windlass::store
