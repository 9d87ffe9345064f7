// Code of the own process, added to every copy of the library in the process. A copy may be in the program or in
// libwindlass.so, and another in libwindlass-unwind.so. Each has its own walkers. Each copy adds the code to itself,
// and calls the next copy in the search order that has the same names.
#if !defined(_WIN32)
#include <dlfcn.h>
#endif

#include <mutex>
#include <unordered_map>
#include <utility>

#include "capi/code.h"
#include "windlass/backtrace.h"
#if !defined(_WIN32)
#include "windlass/jit/code_manager.h"
#endif

using namespace windlass;
using namespace windlass::capi;

namespace {

template <typename Function>
Function* next_in_order([[maybe_unused]] const char* name) {
#if defined(_WIN32)
  return nullptr;
#else
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
#endif
}

// The next copy's ids, by ours.
struct NextIds {
  std::mutex lock;
  std::unordered_map<std::uint64_t, std::uint64_t> of;
};
NextIds& next_ids() {
  static auto* const ids = new NextIds;  // a JIT may retire its code when the program ends
  return *ids;
}

// The end of a call that has added `what`, which the next copy is given by its function of this name. What that refuses
// is taken back here.
template <typename What>
windlass_status hand_on(const char* name, What what, const Expected<CodeRangeId>& own, uint64_t* id,
                        windlass_error* error) {
  if (!own) return report(own.error(), error);
  if (auto* add = next_in_order<windlass_status(What, uint64_t*, windlass_error*)>(name)) {
    std::uint64_t next = 0;
    if (const windlass_status status = add(what, &next, error); status != WINDLASS_OK) {
      (void)retire_own_code(*own);
      return status;
    }
    const std::lock_guard hold(next_ids().lock);
    next_ids().of.emplace(static_cast<std::uint64_t>(*own), next);
  }
  return added(own, id, error);
}

}  // namespace

extern "C" {

windlass_status windlass_add_own_code(const windlass_code* code, uint64_t* id, windlass_error* error) {
  CodeRange range;
  if (!from_c(code, kOwnArchitecture, range)) return invalid("windlass_code is not set up", error);
  return hand_on("windlass_add_own_code", code, add_own_code(std::move(range)), id, error);
}

#if !defined(_WIN32)
windlass_status windlass_add_own_managed_code(int memfd, uint64_t* id, windlass_error* error) {
  return hand_on("windlass_add_own_managed_code", memfd, add_own_managed_code(memfd), id, error);
}
#endif

windlass_status windlass_retire_own_code(uint64_t id, windlass_error* error) {
  const auto own = retire_own_code(CodeRangeId{id});
  if (!own) return report(own.error(), error);
  std::uint64_t next = 0;
  {
    const std::lock_guard hold(next_ids().lock);
    const auto known = next_ids().of.find(id);
    if (known == next_ids().of.end()) return WINDLASS_OK;
    next = known->second;
    next_ids().of.erase(known);
  }
  auto* retire = next_in_order<decltype(windlass_retire_own_code)>("windlass_retire_own_code");
  return retire != nullptr ? retire(next, error) : WINDLASS_OK;
}

}  // extern "C"
