#include "runtimes/interpreted_frames.h"

#include <cstring>
#include <memory>

#include "windlass_user_env.h"
// After its environment:
#include "windlass_interpreter.h"

namespace windlass::runtimes {
namespace {

int read_target(void* context, void* to, __u32 size, __u64 address) {
  return static_cast<const Memory*>(context)->read(address, to, size) ? 0 : 1;
}

void prepare(wl_unwind& unwind, const Memory& memory, const wl_interpreter& interpreter) {
  unwind.env.read = read_target;
  unwind.env.context = const_cast<Memory*>(&memory);  // NOLINT: C's; read_target() gives it back
  unwind.interpreted.layout = interpreter;
}

}  // namespace

Expected<std::vector<manager::InterpretedFrame>> read_frames(const Memory& memory, const wl_interpreter& interpreter,
                                                             const manager::ThreadStack& thread) {
  const auto scratch = std::make_unique<wl_scratch>();
  prepare(scratch->unwind, memory, interpreter);
  scratch->unwind.thread_pointer = thread.pointer;
  scratch->unwind.interpreted.sp = thread.sp;
  (void)wl_take_interpreted(scratch.get());
  std::vector<manager::InterpretedFrame> frames(scratch->unwind.interpreted.count);
  if (frames.empty())
    return fail(ErrorCode::kNotFound, "the interpreter is not known to run anything in the thread", thread.pointer);
  std::memcpy(frames.data(), scratch->frames, frames.size() * sizeof frames.front());
  return frames;
}

bool is_still(const Memory& memory, const wl_interpreter& interpreter, const manager::InterpretedFrame& frame) {
  const auto unwind = std::make_unique<wl_unwind>();
  prepare(*unwind, memory, interpreter);
  return wl_identify_interpreted(unwind.get(), frame.code & ~WL_INTERPRETED_LAST, frame.place) == WL_INTERPRETED_ALL &&
         unwind->interpreted.identity == frame.identity;
}

}  // namespace windlass::runtimes
