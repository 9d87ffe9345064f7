// The own stack as the system walks it, frame by frame: RtlLookupFunctionEntry and RtlVirtualUnwind, as "Unwind
// procedure" (Microsoft) tells debuggers to.
#pragma once

#include <windows.h>

#include <cstdint>
#include <vector>

namespace windlass::test {

// All frames from `context` on, that one first. Ends where the pc is 0 or lies in no image.
inline std::vector<CONTEXT> system_walk(CONTEXT context, std::size_t max = 20000) {
  std::vector<CONTEXT> frames;
  while (context.Rip != 0 && frames.size() < max) {
    void* image = nullptr;
    if (RtlPcToFileHeader(reinterpret_cast<void*>(context.Rip), &image) == nullptr) break;
    frames.push_back(context);
    DWORD64 base = 0;
    if (RUNTIME_FUNCTION* function = RtlLookupFunctionEntry(context.Rip, &base, nullptr)) {
      void* data = nullptr;
      DWORD64 frame = 0;
      RtlVirtualUnwind(UNW_FLAG_NHANDLER, base, context.Rip, function, &context, &data, &frame, nullptr);
    } else {  // a leaf
      context.Rip = *reinterpret_cast<const DWORD64*>(context.Rsp);
      context.Rsp += 8;
    }
  }
  return frames;
}

}  // namespace windlass::test
