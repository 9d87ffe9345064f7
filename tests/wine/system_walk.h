// The own stack as the system walks it, frame by frame: RtlLookupFunctionEntry and RtlVirtualUnwind, as "Unwind
// procedure" (Microsoft) asks debuggers to.
#pragma once

#include <windows.h>

#include <cstdint>
#include <vector>

namespace windlass::test {

// To the caller, in place. False where there is none: the pc is 0 or lies in no image.
inline bool system_step(CONTEXT& context) {
  DWORD64 base = 0;
  if (RUNTIME_FUNCTION* function = RtlLookupFunctionEntry(context.Rip, &base, nullptr)) {
    void* data = nullptr;
    DWORD64 frame = 0;
    RtlVirtualUnwind(UNW_FLAG_NHANDLER, base, context.Rip, function, &context, &data, &frame, nullptr);
  } else {  // a leaf
    void* image = nullptr;
    if (RtlPcToFileHeader(reinterpret_cast<void*>(context.Rip), &image) == nullptr) return false;
    context.Rip = *reinterpret_cast<const DWORD64*>(context.Rsp);
    context.Rsp += 8;
  }
  return context.Rip != 0;
}

// All frames from `context` on, that one first.
inline std::vector<CONTEXT> system_walk(CONTEXT context, std::size_t max = 20000) {
  std::vector<CONTEXT> frames{context};
  while (frames.size() < max && system_step(context)) frames.push_back(context);
  return frames;
}

inline std::uint64_t count_frames(CONTEXT& context) {
  std::uint64_t frames = 1;
  while (system_step(context)) ++frames;
  return frames;
}

}  // namespace windlass::test
