#include "profiler/samples/resting_go.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "os/process_memory.h"
#include "windlass_user_env.h"

#include "windlass_step.h"

namespace windlass::profiler {
namespace {

// Of thread-local memory, below the thread's pointer (x86-64), where the linker puts Go's g in a program with C.
constexpr std::size_t kWords = 64;

int read_process(void* tgid, void* to, __u32 size, __u64 address) {
  return os::read_memory(static_cast<pid_t>(*static_cast<__u32*>(tgid)), address, to, size) ? 0 : 1;
}

bool may_be_pointer(std::uint64_t word) { return word >= 4096 && word % 8 == 0 && word >> 47 == 0; }

}  // namespace

std::uint64_t find_goroutine_stack(wl_raw_event& event) {
  std::uint64_t words[kWords];
  if (event.machine != WL_MACHINE_X86_64 || event.thread_pointer < sizeof words ||
      read_process(&event.head.tgid, words, sizeof words, event.thread_pointer - sizeof words) != 0)
    return 0;
  const auto unwind = std::make_unique<wl_unwind>();
  unwind->env.read = &read_process;
  unwind->env.context = &event.head.tgid;
  unwind->thread_pointer = event.thread_pointer;
  std::copy_n(event.regs, std::size(unwind->cursor.regs), unwind->cursor.regs);
  for (std::size_t i = kWords; i > 0; --i) {
    if (!may_be_pointer(words[i - 1])) continue;
    for (const wl_way& way : {wl_go_of_1_14, wl_go_of_1_25}) {
      unwind->way = way;
      unwind->way.first = static_cast<__s16>((static_cast<int>(i) - 1 - static_cast<int>(kWords)) * 8);
      const std::uint64_t sp = wl_other_go_sp(unwind.get());
      if (unwind->words[WL_WAY_KEEPER].address == 0) continue;  // no thread of Go by this way
      std::ranges::copy(unwind->words, event.words);
      return sp;
    }
  }
  return 0;
}

}  // namespace windlass::profiler
