// windlass/c/stack.h
#include <exception>
#include <string>
#include <vector>

#include "base/shown_format.h"
#include "base/text_writer.h"
#include "capi/structs.h"
#include "symbols/named_for_c.h"
#include "walk/target/thread_stacks.h"
#include "windlass/c/stack.h"
#include "windlass/stack.h"

using namespace windlass;
using namespace windlass::capi;

namespace {

// The C structs of one stack; they point into each other and to the stack.
class StackForC {
 public:
  explicit StackForC(const NamedStack& from) : text_(from.text()), names_(from.frames.size()) {
    for (std::size_t i = 0; i < from.frames.size(); ++i) {
      const NamedFrame& frame = from.frames[i];
      frames_.push_back({.size = sizeof(windlass_named_frame),
                         .pc = frame.pc().value(),
                         .sp = frame.sp(),
                         .origin = static_cast<std::uint32_t>(frame.origin),
                         .certainty = static_cast<std::uint32_t>(frame.certainty),
                         .flags = (frame.pc().is_return_address() ? WINDLASS_RETURN_ADDRESS : 0) |
                                  (frame.signal_frame ? WINDLASS_SIGNAL_FRAME : 0),
                         .reserved = 0,
                         .names = &names_[i].fill(frame.names)});
    }
    for (const windlass_named_frame& frame : frames_) pointers_.push_back(&frame);
    stack_ = {.size = sizeof stack_,
              .thread = from.thread.id,
              .thread_name = from.thread.name.c_str(),
              .text = text_.c_str(),
              .end = static_cast<std::uint32_t>(from.end),
              .flags = from.thread.faulted ? WINDLASS_FAULTED : 0,
              .frames = pointers_.data(),
              .frame_count = pointers_.size()};
  }
  StackForC(const StackForC&) = delete;
  StackForC& operator=(const StackForC&) = delete;

  [[nodiscard]] const windlass_named_stack& stack() const { return stack_; }

 private:
  std::string text_;
  std::vector<symbols::NamedForC> names_;
  std::vector<windlass_named_frame> frames_;
  std::vector<const windlass_named_frame*> pointers_;
  windlass_named_stack stack_{};
};

// use(stack) -> bool: go on.
template <typename Use>
windlass_status each_stack(const char* what, windlass_error* error, Use use) {
  if (what == nullptr) return invalid("there is no process and no file", error);
  try {
    const auto target = open_target(what);
    if (!target) return report(target.error(), error);
    for (const NamedStack& stack : named_stacks(*target))
      if (!use(stack)) break;
  } catch (const std::exception&) {
    return no_memory(error);
  }
  return WINDLASS_OK;
}

}  // namespace

extern "C" {

[[gnu::noinline]] windlass_status windlass_own_named_stack(windlass_named_stack_callback callback, void* user) {
  if (callback == nullptr) return WINDLASS_INVALID;
  try {
    const NamedStack stack = named_stack(walk::caller_of(__builtin_dwarf_cfa()));
    (void)callback(&StackForC(stack).stack(), user);
  } catch (const std::exception&) {
    return WINDLASS_NO_MEMORY;
  }
  return WINDLASS_OK;
}

[[gnu::noinline]] windlass_status windlass_print_stack(int fd) {
  try {
    TextWriter out(fd);
    out.text(named_stack(walk::caller_of(__builtin_dwarf_cfa())).text());
    const auto written = out.finish();
    return written ? WINDLASS_OK : report(written.error(), nullptr);
  } catch (const std::exception&) {
    return WINDLASS_NO_MEMORY;
  }
}

windlass_status windlass_named_stacks(const char* what, windlass_named_stack_callback callback, void* user,
                                      windlass_error* error) {
  if (callback == nullptr) return invalid("there is no callback", error);
  return each_stack(what, error,
                    [&](const NamedStack& stack) { return callback(&StackForC(stack).stack(), user) == 0; });
}

windlass_status windlass_print_stacks(const char* what, int fd, windlass_error* error) {
  TextWriter out(fd);
  const windlass_status status = each_stack(what, error, [&](const NamedStack& stack) {
    out.text(shown_format("{} {}\n", stack.thread.id, stack.thread.name));
    out.text(stack.text());
    return out.failed() == 0;
  });
  if (status != WINDLASS_OK) return status;
  const auto written = out.finish();
  return written ? WINDLASS_OK : report(written.error(), error);
}

}  // extern "C"
