#include "profiler/processes/truncated_files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

namespace windlass::profiler {
namespace {

const auto page_size = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));

extern "C" void zeros_for_missing_page(int signal, siginfo_t* info, void*) {
  // Past the end of a mapped file. mmap is a plain system call: safe in a handler.
  auto* page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(info->si_addr) & ~(page_size - 1));
  if (info->si_code == BUS_ADRERR &&
      mmap(page, page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
    return;
  std::signal(signal, SIG_DFL);
}

}  // namespace

void survive_truncated_files() {
  struct sigaction action {};
  action.sa_sigaction = zeros_for_missing_page;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace windlass::profiler
