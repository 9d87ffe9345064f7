#include "walk_peers.h"

#include <dlfcn.h>
#include <elfutils/libdwfl.h>
#include <execinfo.h>
#include <fmt/core.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <cstdlib>
#include <cstring>

#include "windlass/backtrace.h"

extern "C" void* __libc_stack_end;

namespace {

// ---- the floor ----------------------------------------------------------------------------------------------------

[[gnu::noinline]] std::size_t by_frame_pointers(std::uint64_t* pcs, std::size_t max) {
  const auto* frame = static_cast<const std::uint64_t*>(__builtin_frame_address(0));
  const auto* const end = frame + (std::size_t{4} << 20) / sizeof *frame;
  std::size_t count = 0;
  while (count < max) {
    pcs[count++] = frame[1];
    const auto* next = reinterpret_cast<const std::uint64_t*>(frame[0]);
    if (next <= frame || next > end) break;
    frame = next;
  }
  return count;
}

// ---- this library -------------------------------------------------------------------------------------------------

std::size_t by_windlass(std::uint64_t* pcs, std::size_t max) { return windlass::backtrace(pcs, max, 1); }

std::size_t by_windlass_walker(std::uint64_t* pcs, std::size_t max) {
  windlass::StackWalker walker(windlass::own_process(), windlass::capture_registers());
  std::size_t count = 0;
  while (count < max && walker.step()) pcs[count++] = walker.frame().pc().value();
  return count;
}

// ---- libgcc's interface -------------------------------------------------------------------------------------------

struct Trace {
  std::uint64_t* pcs;
  std::size_t max, count;
};
_Unwind_Reason_Code take(_Unwind_Context* context, void* to) {
  auto& trace = *static_cast<Trace*>(to);
  if (trace.count == trace.max) return _URC_END_OF_STACK;
  trace.pcs[trace.count++] = _Unwind_GetIP(context);
  return _URC_NO_REASON;
}
// The first frame is the function that calls _Unwind_Backtrace.
std::size_t by_libgcc(std::uint64_t* pcs, std::size_t max) {
  Trace trace{pcs, max, 0};
  _Unwind_Backtrace(take, &trace);
  std::memmove(pcs, pcs + 1, (trace.count - 1) * sizeof *pcs);
  return trace.count - 1;
}

decltype(&_Unwind_Backtrace) llvm_backtrace;
std::uintptr_t (*llvm_get_ip)(_Unwind_Context*);
_Unwind_Reason_Code llvm_take(_Unwind_Context* context, void* to) {
  auto& trace = *static_cast<Trace*>(to);
  if (trace.count == trace.max) return _URC_END_OF_STACK;
  trace.pcs[trace.count++] = llvm_get_ip(context);
  return _URC_NO_REASON;
}
std::size_t by_llvm(std::uint64_t* pcs, std::size_t max) {
  Trace trace{pcs, max, 0};
  llvm_backtrace(llvm_take, &trace);
  std::memmove(pcs, pcs + 1, (trace.count - 1) * sizeof *pcs);
  return trace.count - 1;
}

std::size_t by_glibc(std::uint64_t* pcs, std::size_t max) {
  const int count = backtrace(reinterpret_cast<void**>(pcs), static_cast<int>(max));
  std::memmove(pcs, pcs + 1, static_cast<std::size_t>(count - 1) * sizeof *pcs);
  return static_cast<std::size_t>(count - 1);
}

// ---- nongnu libunwind, by its public interface's x86-64 names -----------------------------------------------------

struct NongnuCursor {
  std::uint64_t words[127];
};
int (*unw_backtrace_)(void**, int);
int (*unw_init_)(NongnuCursor*, ucontext_t*);
int (*unw_step_)(NongnuCursor*);
int (*unw_get_)(NongnuCursor*, int, std::uint64_t*);
int (*unw_context_)(ucontext_t*);

std::size_t by_unw_backtrace(std::uint64_t* pcs, std::size_t max) {
  const int count = unw_backtrace_(reinterpret_cast<void**>(pcs), static_cast<int>(max));
  std::memmove(pcs, pcs + 1, static_cast<std::size_t>(count - 1) * sizeof *pcs);
  return static_cast<std::size_t>(count - 1);
}
std::size_t by_unw_step(std::uint64_t* pcs, std::size_t max) {
  ucontext_t context;
  NongnuCursor cursor;
  unw_context_(&context);
  unw_init_(&cursor, &context);
  std::size_t count = 0;
  while (count < max && unw_step_(&cursor) > 0) {
    unw_get_(&cursor, 16, &pcs[count]);
    if (pcs[count] == 0) break;
    ++count;
  }
  return count;
}

// ---- elfutils, attached to the own process by callbacks
// ---------------------------------------------------------------

Dwfl* dwfl;
windlass::Registers dwfl_start;

pid_t dwfl_next_thread(Dwfl*, void* context, void** thread) {
  if (*thread != nullptr) return 0;
  *thread = context;
  return getpid();
}
bool dwfl_read(Dwfl*, Dwarf_Addr address, Dwarf_Word* word, void*) {
  std::memcpy(word, reinterpret_cast<const void*>(address), sizeof *word);
  return true;
}
bool dwfl_registers(Dwfl_Thread* thread, void*) {
  Dwarf_Word words[17];
  for (unsigned i = 0; i < 17; ++i) words[i] = dwfl_start.get(i);
  return dwfl_thread_state_registers(thread, 0, 17, words);
}
int dwfl_take(Dwfl_Frame* frame, void* to) {
  auto& trace = *static_cast<Trace*>(to);
  Dwarf_Addr pc = 0;
  if (!dwfl_frame_pc(frame, &pc, nullptr) || trace.count == trace.max) return DWARF_CB_ABORT;
  trace.pcs[trace.count++] = pc;
  return DWARF_CB_OK;
}
std::size_t by_libdw(std::uint64_t* pcs, std::size_t max) {
  static const Dwfl_Callbacks callbacks = {dwfl_linux_proc_find_elf, dwfl_standard_find_debuginfo, nullptr, nullptr};
  static const Dwfl_Thread_Callbacks threads = {dwfl_next_thread, nullptr, dwfl_read, dwfl_registers, nullptr, nullptr};
  if (dwfl == nullptr) {
    dwfl = dwfl_begin(&callbacks);
    dwfl_linux_proc_report(dwfl, getpid());
    dwfl_report_end(dwfl, nullptr, nullptr);
    static int context;
    dwfl_attach_state(dwfl, nullptr, getpid(), &threads, &context);
  }
  dwfl_start = windlass::capture_registers();
  Trace trace{pcs, max, 0};
  dwfl_getthread_frames(dwfl, getpid(), dwfl_take, &trace);
  if (trace.count == 0) return 0;
  std::memmove(pcs, pcs + 1, (trace.count - 1) * sizeof *pcs);
  return trace.count - 1;
}

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = library != nullptr ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
  return function != nullptr;
}

}  // namespace

std::vector<Peer> walk_peers() {
  std::vector<Peer> peers = {{"frame pointers (the floor)", by_frame_pointers},
                             {"windlass backtrace", by_windlass},
                             {"windlass StackWalker", by_windlass_walker},
                             {"libgcc _Unwind_Backtrace", by_libgcc},
                             {"glibc backtrace", by_glibc}};
  const char* llvm_path = std::getenv("WINDLASS_LLVM_UNWIND");
  void* llvm = dlopen(llvm_path != nullptr ? llvm_path : "/usr/lib/llvm-19/lib/libunwind.so.1", RTLD_NOW | RTLD_LOCAL);
  if (find(llvm, "_Unwind_Backtrace", llvm_backtrace) && find(llvm, "_Unwind_GetIP", llvm_get_ip))
    peers.push_back({"LLVM _Unwind_Backtrace", by_llvm});
  void* nongnu = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
  if (find(nongnu, "unw_backtrace", unw_backtrace_)) peers.push_back({"nongnu unw_backtrace", by_unw_backtrace});
  if (find(nongnu, "_ULx86_64_init_local", unw_init_) && find(nongnu, "_ULx86_64_step", unw_step_) &&
      find(nongnu, "_ULx86_64_get_reg", unw_get_) && find(nongnu, "_Ux86_64_getcontext", unw_context_))
    peers.push_back({"nongnu unw_step", by_unw_step});
  peers.push_back({"libdw in process", by_libdw});
  return peers;
}

std::size_t reference_walk(std::uint64_t* pcs, std::size_t max) {
  const std::size_t count = by_frame_pointers(pcs, max);
  std::memmove(pcs, pcs + 1, (count - 1) * sizeof *pcs);  // this function's own frame
  return count - 1;
}
