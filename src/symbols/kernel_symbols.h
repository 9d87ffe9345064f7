// The running kernel's functions, as /proc/kallsyms names them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

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

// The numbers of the BPF programs that are loaded; no number is given twice. Empty without CAP_SYS_ADMIN.
[[nodiscard]] std::vector<std::uint32_t> bpf_programs();

// Reads the kernel's symbols on a thread of its own, long before they are needed: the kernel takes 0.1 s of CPU time to
// write them.
class KernelSymbolsAhead {
 public:
  using Programs = std::function<std::vector<std::uint32_t>()>;
  explicit KernelSymbolsAhead(std::string path = "/proc/kallsyms", std::string modules_path = "/proc/modules",
                              Programs programs = bpf_programs);
  ~KernelSymbolsAhead();  // does not wait for the end
  KernelSymbolsAhead(const KernelSymbolsAhead&) = delete;
  KernelSymbolsAhead& operator=(const KernelSymbolsAhead&) = delete;

  // Waits for the end. Null where they may not be those of now: there are none, modules have come or gone.
  [[nodiscard]] const KernelSymbols* get();
  // Are the BPF programs now those of then? False where nobody may ask.
  [[nodiscard]] bool programs_stay() const;

 private:
  [[nodiscard]] std::string modules() const;
  void wait();

  std::string path_, modules_path_, modules_before_;
  Programs programs_;
  std::vector<std::uint32_t> programs_before_;
  std::atomic<bool> stopped_ = false;
  std::optional<KernelSymbols> symbols_;
  std::once_flag waited_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace windlass::symbols
