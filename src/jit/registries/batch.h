// What all registries have in common: batches are checked, kept apart from each other and taken away.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "walk/own_modules.h"
#include "windlass/registration.h"

namespace windlass::registries {

// A function that is all right.
struct Function {
  const GeneratedFunction* given;
  [[nodiscard]] std::uint64_t begin() const { return given->address; }
  [[nodiscard]] std::uint64_t end() const { return given->address + given->size; }
};

// The rows of one function after the other, of its code from 0 on. Those of one prologue are made once for all that
// follow each other with it.
class RowsOf {
 public:
  // Valid until the next call. Errors: rows_of()'s that check() does not know.
  [[nodiscard]] Expected<std::span<const FrameRow>> operator()(const Function& function);

 private:
  const Prologue* prologue_ = nullptr;
  std::vector<FrameRow> rows_;
};

// Functions with less than kGap bytes between one and the next, by index.
struct Run {
  static constexpr std::uint64_t kGap = 64;
  std::size_t first;
  std::size_t last;  // one past
  std::uint64_t begin;
  std::uint64_t end;
};

// The batch, ascending by address. Errors: Registrar::add()'s.
[[nodiscard]] Expected<std::vector<Function>> check_batch(std::span<const GeneratedFunction> functions);
[[nodiscard]] std::vector<Run> runs_of(std::span<const Function> functions);

// What a registry keeps of a batch. Its end takes the batch away.
class Published {
 public:
  virtual ~Published() = default;
};

// What is registered, as long as it is: what may not be registered once more. A registrar's own, or of several that
// have one registry behind them.
class Ledger {
 public:
  // `apart`: no function may lie in a gap of a run.
  explicit Ledger(bool apart) : apart_(apart) {}

  // Held by whoever calls one of the others, and while a registry is told.
  [[nodiscard]] std::mutex& lock() { return lock_; }
  // Is everything free that `functions`, whose runs these are, would take? Errors: Registrar::add()'s.
  [[nodiscard]] Expected<void> check_free(std::span<const Function> functions, std::span<const Run> runs) const;
  // What was found to be free. Returns its number, never given twice.
  [[nodiscard]] std::uint64_t take(std::span<const Function> functions, std::span<const Run> runs);
  void give_back(std::uint64_t batch);
  // Are these the functions of a batch, each once?
  [[nodiscard]] Expected<void> check_moves(std::uint64_t batch, std::span<const MovedFunction> functions) const;
  // Places of a batch that was given back, which stay its own; they were found to be free.
  void take(std::uint64_t batch, std::span<const Function> functions, std::span<const Run> runs);

 private:
  struct Range {
    std::uint64_t begin;
    std::uint64_t end;
  };
  struct Batch {
    std::vector<Range> functions;           // ascending
    std::vector<std::uint64_t> run_begins;  // keys of runs_
  };
  struct LiveRun {
    std::uint64_t end;
    std::uint64_t batch;
  };
  [[nodiscard]] Expected<void> check_free(std::span<const Function> functions, const Run& run) const;

  const bool apart_;
  std::mutex lock_;
  std::uint64_t last_batch_ = 0;
  std::map<std::uint64_t, Batch> batches_;  // by number
  std::map<std::uint64_t, LiveRun> runs_;   // by begin. Those of different batches may lie in each other's gaps
  std::uint64_t longest_run_ = 0;           // so far: how far before an address a run may begin that contains it
};

class BatchRegistrar : public Registrar {
 public:
  [[nodiscard]] Expected<RegistrationId> add(std::span<const GeneratedFunction> functions) override;
  Expected<void> remove(RegistrationId id) override;
  Expected<void> move(RegistrationId id, std::span<const MovedFunction> functions) override;

 protected:
  // With a ledger of its own, ...
  explicit BatchRegistrar(bool apart = false) : own_(std::make_unique<Ledger>(apart)), ledger_(*own_) {}
  // ... or with that of its registry, which outlives it.
  explicit BatchRegistrar(Ledger& ledger) : ledger_(ledger) {}
  // Under the ledger's lock. `runs` are those of `functions`, which are neither none nor registered.
  [[nodiscard]] virtual Expected<std::unique_ptr<Published>> publish(std::span<const Function> functions,
                                                                     std::span<const Run> runs) = 0;
  // Of a batch whose functions were `moves`' and are now `functions`.
  [[nodiscard]] virtual Expected<std::unique_ptr<Published>> republish(std::unique_ptr<Published> was,
                                                                       std::span<const MovedFunction> moves,
                                                                       std::span<const Function> functions,
                                                                       std::span<const Run> runs);
  // To be called by the destructors of those that derive from it: what they publish may need them.
  void remove_all();

 private:
  const std::unique_ptr<Ledger> own_;
  Ledger& ledger_;
  walk::CodeExtent executable_;                                    // under the ledger's lock
  std::map<std::uint64_t, std::unique_ptr<Published>> published_;  // by the ledger's number
};

// ---- the registries, each in a file of its own ----------------------------------------------------------------------

using Opened = Expected<std::unique_ptr<Registrar>>;
[[nodiscard]] Opened open_windlass();
[[nodiscard]] Opened open_frame_info();
[[nodiscard]] Opened open_gdb();
[[nodiscard]] Opened open_perf_map(const RegistrarOptions& options);
[[nodiscard]] Opened open_jitdump(const RegistrarOptions& options);
[[nodiscard]] Opened open_sframe();
[[nodiscard]] Opened open_growable_table(const RegistrarOptions& options);
[[nodiscard]] Opened open_table_callback(const RegistrarOptions& options);
[[nodiscard]] Opened open_function_table(const RegistrarOptions& options);

}  // namespace windlass::registries
