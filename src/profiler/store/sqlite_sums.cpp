#include "profiler/store/sqlite_sums.h"

#include <algorithm>
#include <utility>

#include "profiler/store/batch_rows.h"
#include "profiler/store/sqlite_filter.h"

namespace windlass::store {

namespace {

// A sum is kept as two halves, so that SQLite's additions never leave 64 bits.
constexpr std::uint64_t kLowHalf = 0xffff'ffff;
constexpr const char* kAddToKnown =
    " ON CONFLICT DO UPDATE SET count_low = count_low + excluded.count_low, count_high = count_high + "
    "excluded.count_high, value_low = value_low + excluded.value_low, value_high = value_high + excluded.value_high";

// Sets `whole` if there is such a number.
bool join_halves(std::uint64_t low, std::uint64_t high, std::uint64_t& whole) {
  return high <= kLowHalf && !__builtin_add_overflow(high << 32, low, &whole);
}

class SumsQuery {
 public:
  SumsQuery(sqlite3* database, const Filter& filter, const std::function<Expected<void>(const SumsRow&)>& take)
      : database_(database), filter_(filter), take_(take) {}

  // The middle of a range by the longest span that fits, the edges by shorter ones.
  Expected<void> ask(std::uint64_t from, std::uint64_t to, std::size_t span) {
    if (from >= to) return {};
    if (span == spans_.size()) return samples(from, to);
    const std::uint64_t length = spans_[span], begin = (from + length - 1) / length * length,
                        end = to / length * length;
    if (begin >= end) return ask(from, to, span + 1);
    if (const auto before = ask(from, begin, span + 1); !before) return before;
    if (const auto middle = sums(begin, end, length); !middle) return middle;
    return ask(end, to, span + 1);
  }
  void use_spans_that_fit(std::uint64_t from, std::uint64_t step) {
    for (const std::uint64_t span : kSumSpans)
      if (step == 0 || (from % span == 0 && step % span == 0)) spans_.push_back(span);
  }

 private:
  Expected<void> samples(std::uint64_t from, std::uint64_t to) {
    auto statement = prepare_samples(database_, "i.begin_ns, s.event, s.label_set, s.count, s.value", filter_);
    if (!statement) return Failure(statement.error());
    bind_filter(*statement, filter_, from, to);
    return each_row(*statement, [&](const Statement& row) {
      return take_({row.number(0), row.number(1), row.number(2), {row.number(3), row.number(4)}});
    });
  }
  Expected<void> sums(std::uint64_t from, std::uint64_t to, std::uint64_t span) {
    auto statement = Statement::prepare(
        database_,
        "SELECT s.at, s.event, s.label_set, s.count_low, s.count_high, s.value_low, s.value_high FROM sums s WHERE "
        "s.at >= ? AND s.at < ? AND s.span = " +
            std::to_string(span) + filter_conditions(filter_, false),
        false);
    if (!statement) return Failure(statement.error());
    bind_filter(*statement, filter_, from, to);
    return each_row(*statement, [&](const Statement& row) -> Expected<void> {
      Sums sums;
      if (!join_halves(row.number(3), row.number(4), sums.count) ||
          !join_halves(row.number(5), row.number(6), sums.value))
        return fail(ErrorCode::kLimit, kTooLargeSums, 0);
      if (sums == Sums{}) return {};  // of samples that are deleted
      return take_({row.number(0), row.number(1), row.number(2), sums});
    });
  }

  sqlite3* database_;
  const Filter& filter_;
  const std::function<Expected<void>(const SumsRow&)>& take_;
  std::vector<std::uint64_t> spans_;
};

}  // namespace

Expected<SumsWriter> SumsWriter::open(sqlite3* database) {
  auto add = Statement::prepare(database, std::string("INSERT INTO sums VALUES(?, ?, ?, ?, ?, ?, ?, ?)") + kAddToKnown);
  if (!add) return Failure(add.error());
  return SumsWriter(std::move(*add));
}

Expected<void> SumsWriter::add(std::uint64_t begin_ns, std::uint64_t event, std::uint64_t label_set, const Sums& sums) {
  for (const std::uint64_t span : kSumSpans) {
    add_.bind(span).bind(begin_ns / span * span).bind(event).bind(label_set);
    add_.bind(sums.count & kLowHalf).bind(sums.count >> 32).bind(sums.value & kLowHalf).bind(sums.value >> 32);
    if (const auto added = add_.run(); !added) return added;
  }
  return {};
}

Expected<void> subtract_intervals(Database& database, const std::string& which, std::uint64_t bound) {
  for (const std::uint64_t span : kSumSpans) {
    const std::string length = std::to_string(span), half = std::to_string(kLowHalf);
    std::string sql = "INSERT INTO sums SELECT ";
    sql.append(length).append(", begin_ns / ").append(length).append(" * ").append(length);
    sql += " AS at, s.event, s.label_set";
    for (const char* column : {"s.count", "s.value"})
      for (const char* shift : {"", " >> 32"})
        sql.append(", -sum(").append(column).append(shift).append(" & ").append(half).append(")");
    sql += " FROM intervals CROSS JOIN samples s ON s.interval = id WHERE ";
    sql.append(which).append(" GROUP BY at, s.event, s.label_set");
    auto statement = Statement::prepare(database.get(), sql + kAddToKnown, false);
    if (!statement) return Failure(statement.error());
    if (const auto subtracted = statement->bind(bound).run(); !subtracted) return subtracted;
  }
  return {};
}

Expected<void> delete_sums_before(Database& database, std::uint64_t first_begin_ns) {
  for (const std::uint64_t span : kSumSpans) {
    auto statement = Statement::prepare(database.get(), "DELETE FROM sums WHERE span = ? AND at < ?", false);
    if (!statement) return Failure(statement.error());
    if (const auto deleted = statement->bind(span).bind(first_begin_ns / span * span).run(); !deleted) return deleted;
  }
  return {};
}

Expected<void> each_sums(sqlite3* database, const Filter& filter, std::uint64_t from, std::uint64_t to,
                         std::uint64_t step, const std::function<Expected<void>(const SumsRow&)>& take) {
  SumsQuery query(database, filter, take);
  query.use_spans_that_fit(from, step);
  return query.ask(from, std::min(to, kLastTime), 0);
}

}  // namespace windlass::store
