#include "windlass/managed/walk.h"

namespace windlass::managed {

Expected<CrawlFrame> find_caller(const ManagedThread& thread, const Registers& registers, CrawlMark mark) {
  auto left = static_cast<unsigned>(mark);
  ManagedWalker walker(thread, registers, kFunctionsOnly | kSkipFunclets | kLightUnwind | kAllowAsyncWalk);
  while (walker.next()) {
    const CrawlFrame& frame = walker.frame();
    if (!frame.frameless() || frame.method->root().transparent) continue;
    if (left-- == 0) return frame;
  }
  if (walker.error()) return Failure(*walker.error());
  return fail(ErrorCode::kNotFound, "stack has no such caller", registers.pc().value(), static_cast<unsigned>(mark));
}

}  // namespace windlass::managed
