#include "jit/registries/batch.h"

#include <algorithm>
#include <cstdint>

#include "jit/registries/executable.h"
#include "windlass/backtrace.h"

namespace windlass::registries {
namespace {

Expected<void> check(const GeneratedFunction& function) {
  const std::uint64_t at = function.address;
  if (function.size == 0) return fail(ErrorCode::kMalformed, "a function without code", at);
  if (function.size > INT32_MAX) return fail(ErrorCode::kOutOfRange, "a function of 2 GiB or more", at, function.size);
  if (at + function.size < at) return fail(ErrorCode::kMalformed, "a function reaches past the last address", at);
  if ((function.prologue != nullptr) == !function.rows.empty())
    return fail(ErrorCode::kMalformed, "a function is described by a prologue or by rows", at);
  if (function.prologue != nullptr) {
    if (function.prologue->architecture != kOwnArchitecture)
      return fail(ErrorCode::kUnsupported, "a prologue of another architecture than the process's", at);
    if (function.prologue->code_size != function.size)
      return fail(ErrorCode::kMalformed, "code is not of the size the prologue says", at, function.size);
    return {};
  }
  const std::uint64_t base = function.rows.front().begin;
  std::uint64_t reached = base;
  for (const FrameRow& row : function.rows) {
    if (row.begin != reached || row.end <= row.begin)
      return fail(ErrorCode::kMalformed, "rows that do not adjoin", at, row.begin - base);
    reached = row.end;
  }
  if (reached - base != function.size)
    return fail(ErrorCode::kMalformed, "rows of another size than the code's", at, reached - base);
  return {};
}

}  // namespace

Expected<std::vector<Function>> check_batch(std::span<const GeneratedFunction> functions) {
  if (functions.empty()) return fail(ErrorCode::kMalformed, "no function to register", 0);
  std::vector<Function> batch;
  batch.reserve(functions.size());
  const Prologue* checked = nullptr;
  for (const GeneratedFunction& function : functions) {
    if (const auto ok = check(function); !ok) return Failure(ok.error());
    if (function.prologue != nullptr && function.prologue != checked) {
      if (const auto ok = prologue::check(*function.prologue); !ok) return Failure(ok.error());
      checked = function.prologue;
    }
    batch.push_back({&function});
  }
  std::sort(batch.begin(), batch.end(), [](const Function& a, const Function& b) { return a.begin() < b.begin(); });
  for (std::size_t i = 1; i < batch.size(); ++i)
    if (batch[i].begin() < batch[i - 1].end())
      return fail(ErrorCode::kMalformed, "two functions of a batch overlap", batch[i].begin(), batch[i - 1].begin());
  return batch;
}

Expected<std::span<const FrameRow>> RowsOf::operator()(const Function& function) {
  const GeneratedFunction& given = *function.given;
  if (given.prologue == nullptr) {
    rows_.assign(given.rows.begin(), given.rows.end());
    const std::uint64_t base = rows_.front().begin;
    for (FrameRow& row : rows_) {
      row.begin -= base;
      row.end -= base;
    }
  } else if (given.prologue != prologue_) {
    auto rows = prologue::rows_of(*given.prologue);
    if (!rows) return Failure(rows.error());
    rows_ = std::move(*rows);
  }
  prologue_ = given.prologue;
  return rows_;
}

std::vector<Run> runs_of(std::span<const Function> functions) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    if (runs.empty() || functions[i].begin() - runs.back().end >= Run::kGap)
      runs.push_back({.first = i, .last = i, .begin = functions[i].begin(), .end = 0});
    runs.back().last = i + 1;
    runs.back().end = functions[i].end();
  }
  return runs;
}

Expected<void> Ledger::check_free(std::span<const Function> functions, const Run& run) const {
  const std::uint64_t earliest = run.begin > longest_run_ ? run.begin - longest_run_ : 0;
  for (auto live = runs_.lower_bound(earliest); live != runs_.end() && live->first < run.end; ++live) {
    if (live->second.end <= run.begin) continue;
    const auto& others = batches_.at(live->second.batch).functions;
    for (const Function& function : functions.subspan(run.first, run.last - run.first)) {
      const auto next = std::upper_bound(others.begin(), others.end(), function.begin(),
                                         [](std::uint64_t address, const Range& range) { return address < range.end; });
      if (next != others.end() && next->begin < function.end())
        return fail(ErrorCode::kMalformed, "registered already, and not removed", function.begin(), next->begin);
    }
    if (apart_)
      return fail(ErrorCode::kMalformed, "between functions of another batch, which are one range", run.begin,
                  live->first);
  }
  return {};
}

Expected<void> Ledger::check_free(std::span<const Function> functions, std::span<const Run> runs) const {
  for (const Run& run : runs)
    if (const auto ok = check_free(functions, run); !ok) return ok;
  return {};
}

std::uint64_t Ledger::take(std::span<const Function> functions, std::span<const Run> runs) {
  const std::uint64_t number = ++last_batch_;
  take(number, functions, runs);
  return number;
}

void Ledger::take(std::uint64_t number, std::span<const Function> functions, std::span<const Run> runs) {
  Batch& batch = batches_[number];
  batch.functions.reserve(functions.size());
  for (const Function& function : functions) batch.functions.push_back({function.begin(), function.end()});
  for (const Run& run : runs) {
    runs_[run.begin] = {run.end, number};
    batch.run_begins.push_back(run.begin);
    longest_run_ = std::max(longest_run_, run.end - run.begin);
  }
}

Expected<void> Ledger::check_moves(std::uint64_t batch, std::span<const MovedFunction> functions) const {
  std::vector<Range> from;
  from.reserve(functions.size());
  for (const MovedFunction& function : functions) from.push_back({function.from, function.from + function.now.size});
  std::ranges::sort(from, {}, &Range::begin);
  const std::vector<Range>& known = batches_.at(batch).functions;
  for (std::size_t i = 0; i < std::min(from.size(), known.size()); ++i) {
    if (from[i].begin != known[i].begin)
      return fail(ErrorCode::kMalformed, "a function that moved is not one of its batch, or twice", from[i].begin);
    if (from[i].end != known[i].end)
      return fail(ErrorCode::kMalformed, "a function that moved is of another size than it was", from[i].begin);
  }
  if (from.size() != known.size())
    return fail(ErrorCode::kMalformed, "code moves a batch at a time, those functions too that stay", known[0].begin,
                known.size());
  return {};
}

void Ledger::give_back(std::uint64_t batch) {
  const auto found = batches_.find(batch);
  for (const std::uint64_t begin : found->second.run_begins) runs_.erase(begin);
  batches_.erase(found);
}

Expected<RegistrationId> BatchRegistrar::add(std::span<const GeneratedFunction> functions) {
  const auto batch = check_batch(functions);
  if (!batch) return Failure(batch.error());
  const std::vector<Run> runs = runs_of(*batch);
  const std::lock_guard guard(ledger_.lock());
  if (const auto ok = ledger_.check_free(*batch, runs); !ok) return Failure(ok.error());
  if (const auto ok = check_executable(runs, executable_); !ok) return Failure(ok.error());
  auto published = publish(*batch, runs);
  if (!published) return Failure(published.error());
  const std::uint64_t id = ledger_.take(*batch, runs);
  published_[id] = std::move(*published);
  return RegistrationId{id};
}

Expected<void> BatchRegistrar::remove(RegistrationId id) {
  const std::lock_guard guard(ledger_.lock());
  const auto found = published_.find(static_cast<std::uint64_t>(id));
  if (found == published_.end())
    return fail(ErrorCode::kNotFound, "no such registration, or removed before", static_cast<std::uint64_t>(id));
  published_.erase(found);
  ledger_.give_back(static_cast<std::uint64_t>(id));
  return {};
}

Expected<std::unique_ptr<Published>> BatchRegistrar::republish(std::unique_ptr<Published> was,
                                                               std::span<const MovedFunction>,
                                                               std::span<const Function> functions,
                                                               std::span<const Run> runs) {
  was.reset();
  return publish(functions, runs);
}

Expected<void> BatchRegistrar::move(RegistrationId id, std::span<const MovedFunction> functions) {
  std::vector<GeneratedFunction> now;
  now.reserve(functions.size());
  for (const MovedFunction& function : functions) now.push_back(function.now);
  const auto batch = check_batch(now);
  const std::vector<Run> runs = batch ? runs_of(*batch) : std::vector<Run>();
  const auto number = static_cast<std::uint64_t>(id);

  const std::lock_guard guard(ledger_.lock());
  const auto found = published_.find(number);
  if (found == published_.end()) return fail(ErrorCode::kNotFound, "no such registration, or removed before", number);
  std::unique_ptr<Published> was = std::move(found->second);
  published_.erase(found);
  const auto moves = ledger_.check_moves(number, functions);
  ledger_.give_back(number);
  if (!batch) return Failure(batch.error());
  if (!moves) return moves;
  if (const auto ok = ledger_.check_free(*batch, runs); !ok) return ok;
  if (const auto ok = check_executable(runs, executable_); !ok) return ok;
  auto published = republish(std::move(was), functions, *batch, runs);
  if (!published) return Failure(published.error());
  ledger_.take(number, *batch, runs);
  published_[number] = std::move(*published);
  return {};
}

void BatchRegistrar::remove_all() {
  const std::lock_guard guard(ledger_.lock());
  while (!published_.empty()) {
    const std::uint64_t id = published_.begin()->first;
    published_.erase(published_.begin());
    ledger_.give_back(id);
  }
}

}  // namespace windlass::registries
