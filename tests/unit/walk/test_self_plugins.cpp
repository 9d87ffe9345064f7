// Modules that come and go: another one at the same address has other rows.
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "walk/own/fast_walk.h"
#include "walk/own/modules.h"
#include "walk/own/prepared_rules.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

using Call = void (*)(void*, void (*)(void*));

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kFastAlone = false;  // their frames need all registers
#else
constexpr bool kFastAlone = true;
#endif
std::atomic<int> mismatches;
std::atomic<int> compared;

// Above this callback: the plugin, its caller, and so on.
void compare(void*) {
  std::uint64_t ours[256];
  void* theirs[256];
  for (int i = 0; i < 3 && kFastAlone; ++i) {
    // Without those who would find the right callers behind wrong ones.
    const Registers here = capture_registers();
    walk::FastWalk walk({here.pc().value(), here.sp(), here.get(Registers::fp_number(kOwnArchitecture))}, false);
    const std::size_t depth = walk.run(ours, 256);
    const auto peer_depth = static_cast<std::size_t>(::backtrace(theirs, 256));
    const auto* const end = reinterpret_cast<std::uint64_t*>(theirs) + peer_depth;
    if (walk.outcome() != walk::FastWalk::Outcome::kComplete || depth < 3 || peer_depth < depth ||
        !std::equal(ours + 1, ours + depth, end - (depth - 1)))
      ++mismatches;
  }
  for (int i = 0; i < 3; ++i) {
    const std::size_t depth = backtrace(ours, 256);
    const auto peer_depth = static_cast<std::size_t>(::backtrace(theirs, 256));
    ++compared;
    // [0] is here, at another call; sanitizers may put themselves above glibc's.
    const auto* const end = reinterpret_cast<std::uint64_t*>(theirs) + peer_depth;
    if (depth < 3 || peer_depth < depth || !std::equal(ours + 1, ours + depth, end - (depth - 1))) ++mismatches;
  }
}

struct Plugin {
  void* handle = nullptr;
  Call call = nullptr;
  explicit Plugin(const char* path) : handle(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (handle != nullptr) call = reinterpret_cast<Call>(dlsym(handle, "plugin_call"));
  }
  ~Plugin() {
    if (handle != nullptr) dlclose(handle);
  }
};

const walk::PreparedRules rules(table::UnwindTable(), 0);

constexpr const char* kPlugins[] = {WINDLASS_PLUGIN_A, WINDLASS_PLUGIN_B};

// Loads them in turn; returns how often the second was where the first had been.
int alternate(int rounds) {
  int repeated = 0;
  Call before = nullptr;
  for (int i = 0; i < rounds; ++i) {
    const Plugin plugin(kPlugins[i % 2]);
    EXPECT_NE(plugin.call, nullptr) << dlerror();
    if (plugin.call == nullptr) return 0;
    repeated += plugin.call == before ? 1 : 0;
    before = plugin.call;
    for (int walk = 0; walk < 3; ++walk) plugin.call(nullptr, compare);
  }
  return repeated;
}

TEST(Plugins, AnotherAtTheSameAddress) {
  mismatches = compared = 0;
  EXPECT_GT(alternate(40), 10) << "the loader does not use addresses again: nothing is tested";
  EXPECT_EQ(compared, 40 * 9);
  EXPECT_EQ(mismatches, 0);
}

TEST(Plugins, HaveTagsThatHoldForThemAlone) {
  const Plugin plugin(kPlugins[0]);
  ASSERT_NE(plugin.call, nullptr) << dlerror();
  const auto address = reinterpret_cast<std::uint64_t>(plugin.call);
  const walk::OwnModule* module = walk::OwnModules::find(address);
  ASSERT_NE(module, nullptr);
  const std::uint16_t tag = module->tag();
  ASSERT_NE(tag, walk::OwnModule::kNeverUnloaded);
  ASSERT_NE(tag, walk::OwnModule::kUncacheable);
  EXPECT_TRUE(walk::OwnModules::verify(tag, address));
  const auto of_next_in_place = static_cast<std::uint16_t>(tag + walk::OwnModules::kCapacity);
  EXPECT_FALSE(walk::OwnModules::verify(of_next_in_place, address));
}

TEST(Plugins, WhileOthersWalk) {
  mismatches = compared = 0;
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      while (!stop) compare(nullptr);
    });
  }
  EXPECT_GT(alternate(60), 10);
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(mismatches, 0);
}

std::atomic<int> samples;
std::atomic<int> incomplete;

void on_profile(int, siginfo_t*, void* ucontext) {
  static thread_local std::uint64_t pcs[256];
  WalkEnd end{};
  (void)backtrace_from(registers_of(ucontext), pcs, 256, &end);
  ++samples;
  if (end != WalkEnd::kComplete) ++incomplete;
}

TEST(Plugins, UnderAProfilingTimer) {
  mismatches = compared = samples = incomplete = 0;
  struct sigaction action {};
  action.sa_sigaction = on_profile;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  ASSERT_EQ(sigaction(SIGPROF, &action, nullptr), 0);
  const itimerval fast{{0, 500}, {0, 500}};
  ASSERT_EQ(setitimer(ITIMER_PROF, &fast, nullptr), 0);
  for (int i = 0; i < 20 && samples < 100; ++i) (void)alternate(100);
  const itimerval off{};
  setitimer(ITIMER_PROF, &off, nullptr);
  EXPECT_GT(samples, 20);
  EXPECT_EQ(mismatches, 0);
#if !defined(__SANITIZE_THREAD__)  // which delays signals and hands over registers that are not current any more
  // In ld.so and libc, at any instruction.
  EXPECT_EQ(incomplete, 0) << "of " << samples;
#endif
}

// So many modules that the place of one that is gone is given to another.
TEST(Plugins, GetAPlaceWithoutTheTableOfTheOneBefore) {
  const auto folder = std::filesystem::temp_directory_path() / ("windlass-plugins-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  {
    std::vector<std::unique_ptr<Plugin>> copies;
    for (std::size_t i = 0; i < walk::OwnModules::kCapacity; ++i) {
      const auto path = folder / std::to_string(i);
      std::filesystem::copy_file(kPlugins[0], path);
      copies.push_back(std::make_unique<Plugin>(path.c_str()));
      ASSERT_NE(copies.back()->call, nullptr) << dlerror();
      const auto* module = walk::OwnModules::find(reinterpret_cast<std::uint64_t>(copies.back()->call));
      if (module != nullptr) module->publish(&rules);
    }
  }
  std::filesystem::remove_all(folder);
  const Plugin plugin(kPlugins[1]);
  ASSERT_NE(plugin.call, nullptr) << dlerror();
  const walk::OwnModule* module = walk::OwnModules::find(reinterpret_cast<std::uint64_t>(plugin.call));
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module->prepared(), nullptr);
}

}  // namespace
}  // namespace windlass
