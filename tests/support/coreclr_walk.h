// A CoreCLR of another process, for the walk of managed stacks. Methods come from the runtime's code map, and are
// unwound by their Windows unwind information in that process. Explicit frames are the runtime's own.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "runtimes/coreclr/code_map.h"
#include "runtimes/coreclr/frames.h"
#include "runtimes/coreclr/rows.h"
#include "windlass/managed/walk.h"

namespace windlass::test {

namespace coreclr = runtimes::coreclr;

class CoreClrRuntime : public managed::Runtime {
 public:
  CoreClrRuntime(const Memory& memory, const coreclr::CodeMap& map) : memory_(memory), map_(map) {}

  const managed::Method* find(std::uint64_t pc) const override {
    if (const auto after = methods_.upper_bound(pc); after != methods_.begin()) {
      const managed::Method& method = *std::prev(after)->second;
      if (pc >= method.begin && pc < method.end) return &method;
    }
    auto block = map_.find(memory_, pc);
    if (!block || block->is_stub()) return nullptr;
    const managed::Method* found = nullptr;
    const managed::Method* root = nullptr;
    for (const winx64::RuntimeFunction& function : block->functions) {
      auto method = std::make_unique<managed::Method>();
      method->begin = block->base + function.begin;
      method->end = block->base + function.end;
      method->id = block->method_desc;
      method->windows = {.base = block->base, .function = function};
      method->parent = root;
      if (root == nullptr) root = method.get();
      if (pc >= method->begin && pc < method->end) found = method.get();
      methods_.insert_or_assign(method->begin, std::move(method));
    }
    return found;
  }

  // One thread's list at a time.
  void set_frames(const coreclr::ThreadFrames& thread) { frames_ = thread.frames; }
  [[nodiscard]] std::uint64_t first_frame() const {
    return frames_.empty() ? managed::kEndOfFrames : frames_.front().address;
  }
  Expected<managed::FrameView> read(const Memory&, std::uint64_t address, const std::uint64_t*) const override {
    const auto frame = std::ranges::find(frames_, address, &coreclr::ExplicitFrame::address);
    if (frame == frames_.end()) return fail(ErrorCode::kNotFound, "no such frame", address);
    managed::FrameView view;
    view.address = address;
    view.next = std::next(frame) == frames_.end() ? managed::kEndOfFrames : std::next(frame)->address;
    if (frame->kind == "InlinedCallFrame") {
      view.form = managed::FrameForm::kCallSite;
      if (frame->call) view.site = {frame->call->pc, frame->call->sp, frame->call->fp};
    } else {
      view.kind = managed::FrameKind::kUser;
    }
    return view;
  }

 private:
  const Memory& memory_;
  const coreclr::CodeMap& map_;
  mutable std::map<std::uint64_t, std::unique_ptr<managed::Method>> methods_;
  std::vector<coreclr::ExplicitFrame> frames_;
};

}  // namespace windlass::test
