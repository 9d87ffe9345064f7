// The code manager beside what runtimes keep their functions in: std::map and a sorted vector with a shared mutex, and
// a B-tree (Abseil's, where it is installed) with one. By user CPU time of the thread that is measured.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/managed_rows.h"
#include "windlass/jit/code_manager.h"
#if __has_include(<absl/container/btree_map.h>)
#include <absl/container/btree_map.h>
#define HAS_BTREE 1
#endif

using namespace windlass;

namespace {

constexpr std::uint64_t kBegin = 0x10'0000'0000;

// Nanoseconds that this thread has run.
double now() {
  timespec time;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

struct Code {
  std::vector<GeneratedFunction> functions;  // in no order
  std::vector<std::vector<FrameRow>> rows;
  std::uint64_t end = kBegin;
};

// Functions of 32 to 1055 bytes in a row, as compilers align them; 64 kinds of frames.
Code make_code(std::size_t count) {
  Code code;
  std::mt19937 random(1);
  std::vector<std::uint64_t> sizes(32);
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = 32 + i * 33;
  for (const std::uint64_t size : sizes)
    for (int frame = 0; frame < 64; ++frame) code.rows.push_back(test::managed_rows(size, 64 + frame * 16));
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t which = random() % code.rows.size();
    const std::uint64_t size = sizes[which / 64];
    code.functions.push_back({code.end, size, {}, static_cast<std::uint32_t>(i), code.rows[which]});
    code.end += (size + 15) & ~15ull;
  }
  std::shuffle(code.functions.begin(), code.functions.end(), random);
  return code;
}

// ---- who is compared ----------------------------------------------------------------------------------------------

class Manager {
 public:
  explicit Manager(const Code& code) : manager_(*CodeManager::create(kBegin, code.end)) {}
  void add(std::span<const GeneratedFunction> functions) {
    if (const auto added = manager_.add(functions); !added) fmt::print("{}\n", added.error().text()), std::abort();
  }
  void remove(std::span<const std::uint64_t> addresses) {
    if (!manager_.remove(addresses)) std::abort();
  }
  std::uint32_t find(std::uint64_t address) {
    const auto found = manager_.reader().find(address);
    return found ? found->user : ~0u;
  }
  std::uint64_t bytes() {
    struct stat stat {};
    ::fstat(manager_.fd(), &stat);
    return static_cast<std::uint64_t>(stat.st_blocks) * 512;
  }

 private:
  CodeManager manager_;
};

struct Entry {
  std::uint32_t size, user;
  const FrameRow* rows;
};

template <typename Map>
class Locked {
 public:
  explicit Locked(const Code&) {}
  void add(std::span<const GeneratedFunction> functions) {
    const std::lock_guard hold(lock_);
    for (const auto& f : functions) map_[f.address] = {static_cast<std::uint32_t>(f.size), f.user, f.rows.data()};
  }
  void remove(std::span<const std::uint64_t> addresses) {
    const std::lock_guard hold(lock_);
    for (const std::uint64_t address : addresses) map_.erase(address);
  }
  std::uint32_t find(std::uint64_t address) {
    const std::shared_lock hold(lock_);
    auto behind = map_.upper_bound(address);
    if (behind == map_.begin()) return ~0u;
    --behind;
    return address - behind->first < behind->second.size ? behind->second.user : ~0u;
  }
  static std::uint64_t bytes() { return 0; }

 private:
  std::shared_mutex lock_;
  Map map_;
};

// A batch is merged in, or swept out, at once.
class Sorted {
 public:
  explicit Sorted(const Code&) {}
  void add(std::span<const GeneratedFunction> functions) {
    const std::lock_guard hold(lock_);
    const auto middle = static_cast<std::ptrdiff_t>(sorted_.size());
    for (const auto& f : functions)
      sorted_.push_back({f.address, {static_cast<std::uint32_t>(f.size), f.user, f.rows.data()}});
    std::sort(sorted_.begin() + middle, sorted_.end(), by_address);
    std::inplace_merge(sorted_.begin(), sorted_.begin() + middle, sorted_.end(), by_address);
  }
  void remove(std::span<const std::uint64_t> addresses) {
    std::vector<std::uint64_t> gone(addresses.begin(), addresses.end());
    std::sort(gone.begin(), gone.end());
    const std::lock_guard hold(lock_);
    std::erase_if(sorted_, [&](const auto& e) { return std::binary_search(gone.begin(), gone.end(), e.first); });
  }
  std::uint32_t find(std::uint64_t address) {
    const std::shared_lock hold(lock_);
    auto behind = std::upper_bound(sorted_.begin(), sorted_.end(), address,
                                   [](std::uint64_t a, const auto& entry) { return a < entry.first; });
    if (behind == sorted_.begin()) return ~0u;
    --behind;
    return address - behind->first < behind->second.size ? behind->second.user : ~0u;
  }
  static std::uint64_t bytes() { return 0; }

 private:
  using Pair = std::pair<std::uint64_t, Entry>;
  static bool by_address(const Pair& a, const Pair& b) { return a.first < b.first; }
  std::shared_mutex lock_;
  std::vector<Pair> sorted_;
};

// ---- what is measured ---------------------------------------------------------------------------------------------

// Nanoseconds of a look-up, the best of several runs over the same addresses; in a run again and again, so that asking
// for the time costs nothing.
template <typename Keeper>
double look_up(Keeper& keeper, const std::vector<std::uint64_t>& addresses, int runs) {
  double best = 1e18;
  std::uint64_t sum = 0;
  const std::size_t again = 1 + 20'000 / addresses.size();
  for (int run = 0; run < runs; ++run) {
    const double begin = now();
    for (std::size_t i = 0; i < again; ++i)
      for (const std::uint64_t address : addresses) sum += keeper.find(address);
    best = std::min(best, now() - begin);
  }
  if (sum == 1) fmt::print(" ");
  return best / static_cast<double>(addresses.size() * again);
}

// The same while another thread takes away and adds, one function after another.
template <typename Keeper>
double look_up_in_churn(Keeper& keeper, const Code& code, const std::vector<std::uint64_t>& addresses) {
  std::atomic<bool> done = false;
  std::atomic<bool> begun = false;
  std::thread churn([&] {
    for (std::size_t i = 0; !done; i = (i + 1) % code.functions.size()) {
      const std::uint64_t address[] = {code.functions[i].address};
      keeper.remove(address);
      keeper.add(std::span(&code.functions[i], 1));
      begun = true;
    }
  });
  while (!begun) std::this_thread::yield();
  const double result = look_up(keeper, addresses, 3);
  done = true;
  churn.join();
  return result;
}

template <typename Keeper>
void measure(const char* name, const Code& code, std::size_t churned) {
  const std::size_t count = code.functions.size();
  std::mt19937 random(3);
  const auto pick = [&](std::size_t n) {
    std::vector<std::uint64_t> addresses(n);
    for (auto& address : addresses) {
      const GeneratedFunction& function = code.functions[random() % count];
      address = function.address + random() % function.size;
    }
    return addresses;
  };
  Keeper keeper(code);
  const double begin = now();
  keeper.add(code.functions);
  const double added = now();
  const double stack = look_up(keeper, pick(64), 20), warm = look_up(keeper, pick(1000), 20),
               all = look_up(keeper, pick(1'000'000), 3);
  const std::uint64_t bytes = keeper.bytes();
  const double in_churn = churned != 0 ? look_up_in_churn(keeper, code, pick(churned)) : 0;
  std::vector<std::uint64_t> addresses;
  for (const GeneratedFunction& function : code.functions) addresses.push_back(function.address);
  const double remove_begin = now();
  keeper.remove(addresses);
  const double removed = now();
  fmt::print(
      "{:>9} {:<24} add {:8.1f} ms, remove {:8.1f} ms; look-up {:6.1f} ns among 64, {:6.1f} ns among 1,000, {:6.1f} "
      "ns anywhere",
      count, name, (added - begin) / 1e6, (removed - remove_begin) / 1e6, stack, warm, all);
  if (churned != 0) fmt::print(", {:7.1f} ns in churn", in_churn);
  if (bytes != 0) fmt::print("; {:.1f} bytes a function", static_cast<double>(bytes) / static_cast<double>(count));
  fmt::print("\n");
}

}  // namespace

// usage: bench_manager [FUNCTIONS...]
int main(int argc, char** argv) {
  std::vector<std::size_t> counts = {1'000, 100'000, 1'000'000};
  if (argc > 1) counts.clear();
  for (int i = 1; i < argc; ++i) counts.push_back(std::strtoull(argv[i], nullptr, 10));
  for (const std::size_t count : counts) {
    const Code code = make_code(count);
    measure<Manager>("code manager", code, 200'000);
    measure<Locked<std::map<std::uint64_t, Entry>>>("map, shared mutex", code, 200'000);
    // Each change of a sorted vector moves half of it.
    measure<Sorted>("sorted, shared mutex", code, count > 1'000 ? 0 : 200'000);
#if defined(HAS_BTREE)
    measure<Locked<absl::btree_map<std::uint64_t, Entry>>>("B-tree, shared mutex", code, 200'000);
#endif
  }
}
