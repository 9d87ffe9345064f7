// The order in which tables are compiled, and what is left undone.
#include "profiler/processes/compile_queue.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "profiler/processes/code_file.h"

namespace windlass::profiler {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

TEST(CompileQueue, SmallFilesFirst) {
  std::deque<CodeFile> files;
  char name[] = "/tmp/windlass-queue-XXXXXX";
  const std::string folder = ::mkdtemp(name);
  for (const std::size_t size : {500u, 3u, 70u, 9000u}) {
    const std::string path = folder + "/" + std::to_string(size);
    std::ofstream(path) << std::string(size, 'x');
    files.emplace_back().file = *MappedFile::open(path);
  }
  std::latch begun(1), go(1);
  std::mutex mutex;
  std::vector<std::size_t> order;
  CompileQueue queue(1, [&](CodeFile& file) {
    if (&file == &files[0]) {
      begun.count_down();
      go.wait();
    }
    const std::lock_guard lock(mutex);
    order.push_back(file.file.bytes().size());
  });
  queue.push(files[0]);
  begun.wait();
  for (const std::size_t i : {3u, 1u, 2u}) queue.push(files[i]);
  EXPECT_EQ(queue.pending(), 4u);
  EXPECT_FALSE(queue.wait_idle(1ms));
  go.count_down();
  EXPECT_TRUE(queue.wait_idle(300s));
  EXPECT_EQ(order, (std::vector<std::size_t>{500, 3, 70, 9000}));
  EXPECT_EQ(queue.pending(), 0u);
  fs::remove_all(folder);
}

TEST(CompileQueue, EndsWithWorkUndone) {
  constexpr std::size_t kFiles = 20'000;  // some twenty seconds
  std::deque<CodeFile> files(kFiles);
  std::atomic<std::size_t> done = 0;
  {
    CompileQueue queue(1, [&](CodeFile&) {
      std::this_thread::sleep_for(1ms);
      ++done;
      done.notify_one();
    });
    for (CodeFile& file : files) queue.push(file);
    done.wait(0);
  }
  EXPECT_GE(done, 1u);
  EXPECT_LT(done, kFiles);
}

TEST(CompileQueue, WithoutWorkersItOnlyKeeps) {
  CodeFile file;
  CompileQueue queue(0, [](CodeFile&) { FAIL(); });
  EXPECT_TRUE(queue.wait_idle(0ms));
  queue.push(file);
  EXPECT_FALSE(queue.wait_idle(0ms));
  EXPECT_EQ(queue.pending(), 1u);
}

}  // namespace
}  // namespace windlass::profiler
