#include "profiler/processes/compile_queue.h"

#include <sys/stat.h>

#include <utility>

#include "base/monotonic.h"
#include "lookup/sources/unwind_source.h"
#include "lookup/table/compile.h"

namespace windlass::profiler {
namespace {

double thread_seconds() { return static_cast<double>(thread_time_ns()) * 1e-9; }

Expected<table::UnwindTable> table_of(CodeFile& file, TableCache* cache, std::string& problem) {
  if (cache != nullptr && file.key)
    if (auto kept = cache->find(*file.key)) {
      file.from_cache = true;
      return std::move(*kept);
    }
  const auto note = [&](const Error& error) {
    if (problem.empty()) problem = error.text();
  };
  const auto from = file.make_source();
  return table::compile(*from, note);
}

// Has nobody written to it since it was opened?
bool is_unchanged(const CodeFile& file) {
  struct stat now {};
  return file.fd >= 0 && fstat(file.fd, &now) == 0 && TableKey::of(now, file.build_id) == file.key;
}

// Why there is no table; empty if there is one.
std::string load_table(CodeFile& file, TableStore& store, TableCache* cache) {
  std::string problem;
  const auto table = table_of(file, cache, problem);
  if (!table) return table.error().text();
  if (table->empty()) return problem.empty() ? "no unwind information" : problem;
  if (const auto loaded = store.load_table(file.kernel_id, *table); !loaded) return loaded.error().text;
  file.table_rows = table->stats().rows;
  file.table_bytes = table->bytes();
  if (cache != nullptr && !file.from_cache && file.key && is_unchanged(file)) cache->keep(*file.key, *table);
  return {};
}

}  // namespace

void compile_table(CodeFile& file, TableStore& store, TableCache* cache) {
  const double begin = thread_seconds();
  file.reason = load_table(file, store, cache);
  if (!file.reason.empty()) store.set_no_table(file.kernel_id);
  file.compile_seconds = thread_seconds() - begin;
  file.let_go_of_pages();
  file.state = file.reason.empty() ? TableState::kReady : TableState::kNoTable;  // last: it may be dropped from here on
}

CompileQueue::CompileQueue(unsigned workers, Work work) : work_(std::move(work)) {
  for (unsigned i = 0; i < workers; ++i) workers_.emplace_back([this] { run(); });
}

CompileQueue::~CompileQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
}

void CompileQueue::push(CodeFile& file) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push({file.file.bytes().size(), &file});
  }
  wake_.notify_one();
}

void CompileQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    CodeFile& file = *jobs_.top().file;
    jobs_.pop();
    ++running_;
    lock.unlock();
    work_(file);
    lock.lock();
    --running_;
    if (jobs_.empty() && running_ == 0) idle_.notify_all();
  }
}

bool CompileQueue::wait_idle(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, timeout, [this] { return jobs_.empty() && running_ == 0; });
}

std::size_t CompileQueue::pending() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size() + running_;
}

}  // namespace windlass::profiler
