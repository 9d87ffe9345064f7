#include "os/register_writers.h"

#include <algorithm>
#include <string_view>

#include "os/kallsyms.h"

namespace windlass::os {
namespace {

struct Writer {
  std::string_view name;
  std::string_view writes = {};  // the function that writes for it, unless a compiler has put that into it
};

// Of arch/x86 and arch/arm64.
constexpr Writer kWriters[] = {
    // to a signal handler
    {"x64_setup_rt_frame"},
    {"x32_setup_rt_frame"},
    {"ia32_setup_frame"},
    {"ia32_setup_rt_frame"},
    {"setup_return"},
    {"__setup_frame"},
    {"__setup_rt_frame"},
    {"setup_rt_frame", "x64_setup_rt_frame"},
    {"handle_signal", "x64_setup_rt_frame"},
    {"do_signal", "x64_setup_rt_frame"},
    {"do_notify_resume", "x64_setup_rt_frame"},
    {"arch_do_signal_or_restart", "x64_setup_rt_frame"},
    // back from one
    {"restore_sigcontext"},
    {"restore_sigframe"},
    {"ia32_restore_sigcontext"},
    {"__arm64_sys_rt_sigreturn"},
    {"__do_sys_rt_sigreturn", "restore_sigcontext"},
    {"__x64_sys_rt_sigreturn", "restore_sigcontext"},
    {"__do_compat_sys_x32_rt_sigreturn", "restore_sigcontext"},
    {"__x64_compat_sys_x32_rt_sigreturn", "restore_sigcontext"},
    {"__do_compat_sys_sigreturn", "ia32_restore_sigcontext"},
    {"__do_compat_sys_rt_sigreturn", "ia32_restore_sigcontext"},
    {"__ia32_compat_sys_sigreturn", "ia32_restore_sigcontext"},
    {"__ia32_compat_sys_rt_sigreturn", "ia32_restore_sigcontext"},
    // an instruction or a call that the kernel executes for the thread
    {"emulate_vsyscall"},
    {"push_emulate_op"},
    {"branch_emulate_op"},
    {"default_post_xol_op"},
    {"__do_sys_uretprobe"},
    {"__x64_sys_uretprobe"},
    {"__do_sys_uprobe"},
    {"__x64_sys_uprobe"}};

}  // namespace

RegisterWriters::RegisterWriters(const std::string& kallsyms) {
  std::vector<std::uint64_t> functions;
  std::vector<std::pair<const Writer*, std::uint64_t>> writers;
  std::string note;
  (void)for_each_kernel_symbol(kallsyms, note, [&](const KernelSymbol& symbol) {
    if (!symbol.module.empty()) return false;
    if (symbol.address == 0 || !symbol.is_code()) return true;
    functions.push_back(symbol.address);
    // Without the suffixes of compilers: .isra.0, .constprop.0.
    const auto* writer = std::ranges::find(kWriters, symbol.name.substr(0, symbol.name.find('.')), &Writer::name);
    if (writer != std::end(kWriters)) writers.emplace_back(writer, symbol.address);
    if (symbol.name == "__entry_text_start") entry_begin_ = symbol.address;
    if (symbol.name == "__entry_text_end") entry_end_ = symbol.address;
    return true;
  });
  std::ranges::sort(functions);
  const auto is_there = [&](std::string_view name) {
    return std::ranges::any_of(writers, [&](const auto& writer) { return writer.first->name == name; });
  };
  for (const auto& [writer, begin] : writers)
    if (const auto next = std::ranges::upper_bound(functions, begin);
        next != functions.end() && !is_there(writer->writes))
      ranges_.emplace_back(begin, *next);
}

bool RegisterWriters::were_writing(std::span<const std::uint64_t> kernel) const {
  const auto writes = [&](std::uint64_t frame) {
    return std::ranges::any_of(ranges_,
                               [&](const auto& range) { return frame >= range.first && frame < range.second; });
  };
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    const bool interrupted = i == 0 || (kernel[i - 1] >= entry_begin_ && kernel[i - 1] < entry_end_);
    if (interrupted && writes(kernel[i])) return true;
  }
  return false;
}

}  // namespace windlass::os
