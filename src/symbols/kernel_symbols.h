// The running kernel's functions, as /proc/kallsyms names them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/address_range.h"

namespace windlass::symbols {

// Some 10 MB of names.
class KernelSymbols {
 public:
  // `note` says why there are none: without privilege the file shows only zeros. None, too, once `stopped` is true.
  KernelSymbols(const std::string& path, std::string& note, const std::atomic<bool>& stopped = false);
  [[nodiscard]] bool empty() const { return symbols_.empty(); }
  // An address belongs to the last text symbol at or before it, if the next symbol of the same kernel module follows
  // and is less than 1 MiB away.
  [[nodiscard]] std::optional<std::string_view> name_of(std::uint64_t address) const;
  // Is its function one of the kernel's own, or of a module's? Or of a BPF program, if `programs_stay`. Not of what
  // comes and goes.
  [[nodiscard]] bool stays(std::uint64_t address, bool programs_stay) const;

 private:
  struct Symbol {
    std::uint64_t address;
    std::string_view module;  // into blocks_; "xfs" in brackets, empty for the kernel itself
    std::string_view name;
    bool is_global;
  };
  std::string_view keep(std::string_view text);
  [[nodiscard]] std::vector<Symbol>::const_iterator behind(std::uint64_t address) const;

  std::vector<std::unique_ptr<char[]>> blocks_;
  std::size_t used_ = 0, block_size_ = 0;
  std::vector<Symbol> symbols_;
};

// The numbers of the BPF programs that are loaded, ascending; no number is given twice. Empty without CAP_SYS_ADMIN.
[[nodiscard]] std::vector<std::uint32_t> bpf_programs();
// Where the code of programs with these numbers is, as far as the kernel tells. Three calls of the system a program.
[[nodiscard]] std::vector<AddressRange> bpf_code(std::span<const std::uint32_t> numbers);

// Reads the kernel's symbols on a thread of its own, long before they are needed: the kernel takes 0.1 s of CPU time to
// write them. Reads them again where they may have changed, and keeps what was read last.
class KernelSymbolsAhead {
 public:
  using Programs = std::function<std::vector<std::uint32_t>()>;
  using Code = std::function<std::vector<AddressRange>(std::span<const std::uint32_t>)>;
  explicit KernelSymbolsAhead(std::string path = "/proc/kallsyms", std::string modules_path = "/proc/modules",
                              Programs programs = bpf_programs, Code code = bpf_code);
  ~KernelSymbolsAhead();  // does not wait for the end
  KernelSymbolsAhead(const KernelSymbolsAhead&) = delete;
  KernelSymbolsAhead& operator=(const KernelSymbolsAhead&) = delete;

  // Those of now for these addresses, which may be none; `note` says why. Waits for the end of the first reading. Reads
  // anew if there were none, if modules have come or gone, or if the code at an address may be another one: not for
  // code of a program that is still loaded, whatever others have come. By any thread.
  [[nodiscard]] std::shared_ptr<const KernelSymbols> at(std::span<const std::uint64_t> addresses, std::string& note);
  // How often they were read. For tests.
  [[nodiscard]] unsigned readings() const { return readings_; }

 private:
  [[nodiscard]] std::string modules() const;
  [[nodiscard]] bool have_stayed(std::span<const std::uint64_t> addresses) const;

  std::string path_, modules_path_, modules_before_;
  Programs programs_;
  Code code_;
  std::vector<std::uint32_t> programs_before_;
  std::atomic<bool> stopped_ = false;
  std::atomic<unsigned> readings_ = 1;
  std::mutex mutex_;                              // of what at() writes
  std::shared_ptr<const KernelSymbols> symbols_;  // by `thread_`, then under the mutex
  std::thread thread_;                            // last: it uses the others
};

}  // namespace windlass::symbols
