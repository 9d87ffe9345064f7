// The common part of all registries: batches are checked, kept apart, and taken away.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "walk/own_modules.h"
#include "windlass/jit/registration.h"

namespace windlass::registries {

// A function that has been checked.
struct Function {
  const GeneratedFunction* given;
  [[nodiscard]] std::uint64_t begin() const { return given->address; }
  [[nodiscard]] std::uint64_t end() const { return given->address + given->size; }
};

// Makes the rows of function after function; each function's code begins at 0. Consecutive functions with the same
// prologue share rows.
class RowsOf {
 public:
  // Valid until the next call. Errors: those of rows_of() that check() does not find.
  [[nodiscard]] Expected<std::span<const FrameRow>> operator()(const Function& function);

 private:
  const Prologue* prologue_ = nullptr;
  std::vector<FrameRow> rows_;
};

// Functions with less than kGap bytes between neighbours, by index.
struct Run {
  static constexpr std::uint64_t kGap = 64;
  std::size_t first;
  std::size_t last;  // One past.
  std::uint64_t begin;
  std::uint64_t end;
};

// Checks a batch, and sorts it by address. Errors: those of Registrar::add().
[[nodiscard]] Expected<std::vector<Function>> check_batch(std::span<const GeneratedFunction> functions);
[[nodiscard]] std::vector<Run> runs_of(std::span<const Function> functions);

// A batch in a registry. The destructor takes the batch away.
class Published {
 public:
  virtual ~Published() = default;
};

// The registered ranges, which may not be registered again. A registrar has its own ledger, or shares the ledger of its
// registry.
class Ledger {
 public:
  // `apart`: no function may lie in a gap of a run.
  explicit Ledger(bool apart) : apart_(apart) {}

  // Held by callers of the other functions, and while a registry is told.
  [[nodiscard]] std::mutex& lock() { return lock_; }
  // Checks that everything is free that `functions` would take. `runs` are their runs. Errors: those of
  // Registrar::add().
  [[nodiscard]] Expected<void> check_free(std::span<const Function> functions, std::span<const Run> runs) const;
  // Takes ranges that were found to be free. Returns the batch's number, never given twice.
  [[nodiscard]] std::uint64_t take(std::span<const Function> functions, std::span<const Run> runs);
  void give_back(std::uint64_t batch);
  // Checks that these are the functions of a batch, each once.
  [[nodiscard]] Expected<void> check_moves(std::uint64_t batch, std::span<const MovedFunction> functions) const;
  // Takes new ranges, found to be free, for a batch that was given back and keeps its number.
  void take(std::uint64_t batch, std::span<const Function> functions, std::span<const Run> runs);

 private:
  struct Range {
    std::uint64_t begin;
    std::uint64_t end;
  };
  struct Batch {
    std::vector<Range> functions;           // Ascending.
    std::vector<std::uint64_t> run_begins;  // Keys of runs_.
  };
  struct LiveRun {
    std::uint64_t end;
    std::uint64_t batch;
  };
  [[nodiscard]] Expected<void> check_free(std::span<const Function> functions, const Run& run) const;

  const bool apart_;
  std::mutex lock_;
  std::uint64_t last_batch_ = 0;
  std::map<std::uint64_t, Batch> batches_;  // By number.
  std::map<std::uint64_t, LiveRun> runs_;   // By begin. Runs of different batches may lie in each other's gaps.
  std::uint64_t longest_run_ = 0;           // So far. A run that contains an address begins at most this far before it.
};

class BatchRegistrar : public Registrar {
 public:
  [[nodiscard]] Expected<RegistrationId> add(std::span<const GeneratedFunction> functions) override;
  Expected<void> remove(RegistrationId id) override;
  Expected<void> move(RegistrationId id, std::span<const MovedFunction> functions) override;

 protected:
  // With a ledger of its own, ...
  explicit BatchRegistrar(bool apart = false) : own_(std::make_unique<Ledger>(apart)), ledger_(*own_) {}
  // ... or with the ledger of its registry, which outlives the registrar.
  explicit BatchRegistrar(Ledger& ledger) : ledger_(ledger) {}
  // Called under the ledger's lock. `runs` are the runs of `functions`, which are not empty and not registered.
  [[nodiscard]] virtual Expected<std::unique_ptr<Published>> publish(std::span<const Function> functions,
                                                                     std::span<const Run> runs) = 0;
  // For a batch whose functions were those of `moves`, and are now `functions`.
  [[nodiscard]] virtual Expected<std::unique_ptr<Published>> republish(std::unique_ptr<Published> was,
                                                                       std::span<const MovedFunction> moves,
                                                                       std::span<const Function> functions,
                                                                       std::span<const Run> runs);
  // Called by the destructors of derived classes, which their published batches may need.
  void remove_all();

 private:
  const std::unique_ptr<Ledger> own_;
  Ledger& ledger_;
  walk::CodeExtent executable_;                                    // Under the ledger's lock.
  std::map<std::uint64_t, std::unique_ptr<Published>> published_;  // By the ledger's number.
};

// ---- the registries, each in a file of its own ----------------------------------------------------------------------

using Opened = Expected<std::unique_ptr<Registrar>>;
[[nodiscard]] Opened open_windlass();
[[nodiscard]] Opened open_frame_info();
[[nodiscard]] Opened open_gdb();
[[nodiscard]] Opened open_perf_map(const RegistrarOptions& options);
[[nodiscard]] Opened open_jitdump(const RegistrarOptions& options);
[[nodiscard]] Opened open_growable_table(const RegistrarOptions& options);
[[nodiscard]] Opened open_table_callback(const RegistrarOptions& options);
[[nodiscard]] Opened open_function_table(const RegistrarOptions& options);
[[nodiscard]] Opened open_code_manager(const RegistrarOptions& options);

}  // namespace windlass::registries
