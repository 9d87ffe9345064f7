#include "symbols/kernel_symbols.h"

#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "os/descriptor.h"
#include "os/kallsyms.h"
#include "os/text_lines.h"

namespace windlass::symbols {

std::string_view KernelSymbols::keep(std::string_view text) {
  if (used_ + text.size() > block_size_) {
    block_size_ = std::max<std::size_t>(1 << 20, text.size());
    blocks_.push_back(std::make_unique<char[]>(block_size_));
    used_ = 0;
  }
  char* place = blocks_.back().get() + used_;
  std::memcpy(place, text.data(), text.size());
  used_ += text.size();
  return {place, text.size()};
}

KernelSymbols::KernelSymbols(const std::string& path, std::string& note, const std::atomic<bool>& stopped) {
  std::string_view module;  // runs of symbols share it
  bool any_address = false;
  const bool read = os::for_each_kernel_symbol(path, note, [&](const os::KernelSymbol& symbol) {
    if (stopped.load(std::memory_order_relaxed)) return false;
    any_address |= symbol.address != 0;
    // $x, $d: what AArch64's assemblers mark code and data with (AAELF64 5.5.4), in modules
    if (!symbol.is_code() || symbol.name[0] == '$') return true;
    if (symbol.module != module) module = keep(symbol.module);
    symbols_.push_back({symbol.address, module, keep(symbol.name), symbol.type == 'T'});
    return true;
  });
  if (read && !any_address) note = path + ": addresses are hidden (kernel.kptr_restrict, or not privileged)";
  if (!any_address || stopped) symbols_.clear();
  std::ranges::stable_sort(symbols_, {}, &Symbol::address);
}

std::vector<KernelSymbols::Symbol>::const_iterator KernelSymbols::behind(std::uint64_t address) const {
  return std::ranges::upper_bound(symbols_, address, {}, &Symbol::address);
}

std::optional<std::string_view> KernelSymbols::name_of(std::uint64_t address) const {
  constexpr std::uint64_t kLongestFunction = 1 << 20;
  const auto next = behind(address);
  if (next == symbols_.begin() || next == symbols_.end()) return std::nullopt;
  auto best = next - 1;
  for (auto alias = best; alias != symbols_.begin() && (alias - 1)->address == best->address;) {
    --alias;  // first a global name, then the first in the file
    if (alias->is_global || !best->is_global) best = alias;
  }
  // The end of a symbol is where the next one starts; the last one of a module has no end that could be known.
  if (next->module != best->module && next->address - best->address > 4096) return std::nullopt;
  if (address - best->address >= kLongestFunction) return std::nullopt;
  return best->name;
}

// The kernel lists what comes and goes as of modules "bpf", "__builtin__ftrace" and "__builtin__kprobes"
// (kernel/kallsyms.c).
bool KernelSymbols::stays(std::uint64_t address, bool programs_stay) const {
  const auto next = behind(address);
  if (next == symbols_.begin() || next == symbols_.end()) return false;
  const std::string_view module = next->module;
  if (module == "[bpf]" && programs_stay) return true;
  return module == (next - 1)->module && module != "[bpf]" && !module.starts_with("[__builtin__");
}

std::vector<std::uint32_t> bpf_programs() {
  std::vector<std::uint32_t> numbers;
  bpf_attr request{};
  while (syscall(SYS_bpf, BPF_PROG_GET_NEXT_ID, &request, sizeof request) == 0) {
    numbers.push_back(request.next_id);
    request.start_id = request.next_id;
  }
  if (errno != ENOENT) numbers.clear();  // not at their end
  return numbers;
}

// The kernel's struct bpf_prog_info says where each function of a program begins, and how long it is.
std::vector<AddressRange> bpf_code(std::span<const std::uint32_t> numbers) {
  std::vector<AddressRange> code;
  for (const std::uint32_t number : numbers) {
    bpf_attr request{};
    request.prog_id = number;
    const os::Descriptor program(static_cast<int>(syscall(SYS_bpf, BPF_PROG_GET_FD_BY_ID, &request, sizeof request)));
    bpf_prog_info info{};
    const auto ask = [&] {
      bpf_attr asked{};
      asked.info.bpf_fd = static_cast<std::uint32_t>(program.get());
      asked.info.info_len = sizeof info, asked.info.info = reinterpret_cast<std::uint64_t>(&info);
      return syscall(SYS_bpf, BPF_OBJ_GET_INFO_BY_FD, &asked, sizeof asked) == 0;
    };
    if (!program || !ask()) continue;
    std::vector<std::uint64_t> begins(info.nr_jited_ksyms);
    std::vector<std::uint32_t> sizes(info.nr_jited_func_lens);
    info = {};
    info.jited_ksyms = reinterpret_cast<std::uint64_t>(begins.data());
    info.jited_func_lens = reinterpret_cast<std::uint64_t>(sizes.data());
    info.nr_jited_ksyms = static_cast<std::uint32_t>(begins.size());
    info.nr_jited_func_lens = static_cast<std::uint32_t>(sizes.size());
    if (!ask() || begins.size() != sizes.size()) continue;
    for (std::size_t i = 0; i < begins.size(); ++i) code.push_back({begins[i], begins[i] + sizes[i]});
  }
  return code;
}

KernelSymbolsAhead::KernelSymbolsAhead(std::string path, std::string modules_path, Programs programs, Code code)
    : path_(std::move(path)),
      modules_path_(std::move(modules_path)),
      modules_before_(modules()),
      programs_(std::move(programs)),
      code_(std::move(code)),
      programs_before_(programs_()),
      thread_([this] {
        std::string note;
        symbols_ = std::make_shared<const KernelSymbols>(path_, note, stopped_);
      }) {}

KernelSymbolsAhead::~KernelSymbolsAhead() {
  stopped_ = true;
  if (thread_.joinable()) thread_.join();
}

// Names, sizes and addresses, without the counts of users that change all the time (proc(5)).
std::string KernelSymbolsAhead::modules() const {
  std::string lasting, note;
  (void)os::for_each_line(modules_path_, note, [&](std::string_view line) {
    for (int field = 0; field < 6; ++field) {
      const std::string_view text = os::next_field(line);
      if (field < 2 || field == 5) lasting.append(text) += ' ';
    }
    return true;
  });
  return lasting;
}

bool KernelSymbolsAhead::have_stayed(std::span<const std::uint64_t> addresses) const {
  if (symbols_->empty() || modules() != modules_before_) return false;
  const std::vector<std::uint32_t> programs = programs_();
  const bool programs_stay = !programs_before_.empty() && programs_before_ == programs;
  std::vector<std::uint64_t> doubtful;
  std::ranges::copy_if(addresses, std::back_inserter(doubtful),
                       [&](std::uint64_t at) { return !symbols_->stays(at, programs_stay); });
  if (doubtful.empty()) return true;
  // A program that has been there all the time is where it was.
  std::vector<std::uint32_t> lasting;
  std::ranges::set_intersection(programs_before_, programs, std::back_inserter(lasting));
  const std::vector<AddressRange> code = programs_stay ? std::vector<AddressRange>() : code_(lasting);
  return std::ranges::all_of(doubtful, [&](std::uint64_t at) {
    return symbols_->stays(at, true) &&
           std::ranges::any_of(code, [&](const AddressRange& function) { return function.contains(at); });
  });
}

// The lists are of a time before the reading: of what comes in between, the next call reads again.
std::shared_ptr<const KernelSymbols> KernelSymbolsAhead::at(std::span<const std::uint64_t> addresses,
                                                            std::string& note) {
  const std::scoped_lock lock(mutex_);
  if (thread_.joinable()) thread_.join();
  if (have_stayed(addresses)) return symbols_;
  modules_before_ = modules();
  programs_before_ = programs_();
  ++readings_;
  symbols_.reset();  // not two of them at once
  return symbols_ = std::make_shared<const KernelSymbols>(path_, note);
}

}  // namespace windlass::symbols
