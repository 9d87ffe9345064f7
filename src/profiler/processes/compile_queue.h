// Work on files by worker threads, small files first: most of what runs can then be unwound soon.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

#include "profiler/kernel/table_store.h"
#include "profiler/processes/code_file.h"

namespace windlass::profiler {

// Loads the file's table into `store`, from `cache` (null: there is none) or compiled, and says in the file how that
// went. Any thread; the file's alone.
void compile_table(CodeFile& file, TableStore& store, TableCache* cache);

// Thread-safe.
class CompileQueue {
 public:
  using Work = std::function<void(CodeFile& file)>;

  // `work` is called on several threads at once, each time with another file. `workers` 0: none, nothing is done.
  CompileQueue(unsigned workers, Work work);
  // Waits for work that has begun; what is queued stays undone.
  ~CompileQueue();
  CompileQueue(const CompileQueue&) = delete;
  CompileQueue& operator=(const CompileQueue&) = delete;

  // The file must stay until its work is done.
  void push(CodeFile& file);
  // Waits until nothing is queued or under way, at most `timeout`. False on timeout.
  bool wait_idle(std::chrono::milliseconds timeout);
  [[nodiscard]] std::size_t pending() const;

 private:
  struct Job {
    std::uint64_t size;
    CodeFile* file;
    bool operator<(const Job& other) const { return size > other.size; }  // smallest on top
  };
  void run();

  Work work_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::priority_queue<Job> jobs_;
  std::size_t running_ = 0;
  bool stopping_ = false;
  std::vector<std::jthread> workers_;
};

}  // namespace windlass::profiler
