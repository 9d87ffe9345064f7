#include "runtimes/python/frames.h"

#include <cstring>
#include <memory>

#include "windlass_user_env.h"
// After its environment:
#include "windlass_interpreter.h"

namespace windlass::runtimes::python {
namespace {

int read_target(void* context, void* to, __u32 size, __u64 address) {
  return static_cast<const Memory*>(context)->read(address, to, size) ? 0 : 1;
}

void prepare(wl_unwind& unwind, const Memory& memory, const wl_interpreter& list) {
  unwind.env.read = read_target;
  unwind.env.context = const_cast<Memory*>(&memory);  // NOLINT: C's; read_target() gives it back
  unwind.interpreted.layout = list;
}

}  // namespace

Expected<std::vector<manager::InterpretedFrame>> read_frames(const Memory& memory, const wl_interpreter& list,
                                                             std::uint64_t thread) {
  const auto scratch = std::make_unique<wl_scratch>();
  prepare(scratch->unwind, memory, list);
  scratch->unwind.thread_pointer = thread;
  (void)wl_take_interpreted(scratch.get());
  std::vector<manager::InterpretedFrame> frames(scratch->unwind.interpreted.count);
  if (frames.empty()) return fail(ErrorCode::kNotFound, "CPython is not known to run anything in the thread", thread);
  std::memcpy(frames.data(), scratch->frames, frames.size() * sizeof frames.front());
  return frames;
}

Expected<std::uint32_t> identity_of(const Memory& memory, const wl_interpreter& list, std::uint64_t code) {
  const auto unwind = std::make_unique<wl_unwind>();
  prepare(*unwind, memory, list);
  if (wl_identify_code(unwind.get(), code) != WL_INTERPRETED_ALL)
    return fail(ErrorCode::kUnreadable, "there is no code object", code);
  return unwind->interpreted.identity;
}

}  // namespace windlass::runtimes::python
