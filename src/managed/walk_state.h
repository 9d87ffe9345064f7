// Where a managed walk stands.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "walk/scratch_pool.h"
#include "walk/unwinders.h"
#include "windlass/managed_walk.h"

namespace windlass::managed {

// Code at a moment: registers, and where callees have saved them.
struct Place {
  Registers registers;
  SavedLocations saved;
};

struct ManagedWalker::State {
  State(const ManagedThread& its_thread, const Registers& registers, WalkFlags its_flags);

  enum class Next : std::uint8_t {
    kStart,
    kMethod,    // `here` is in `method`, which has not been shown
    kCaller,    // it has
    kNative,    // `here` is native code, or nowhere
    kFrame,     // the explicit frame at hand has been shown
    kRecord,    // the exception record at hand has been shown
    kFunction,  // a native frame has been shown
    kDone,
  };

  [[nodiscard]] bool has(WalkFlags flag) const { return (flags & flag) != 0; }
  bool advance();
  bool failed(const Error& why);
  void enter(const Place& place);

  bool start();
  bool show_method();
  bool leave_method();
  bool show_native();
  bool show_native_frame();
  bool leave_native_frame();
  bool show_frame(CrawlState as);
  bool leave_frame();
  bool show_record();
  bool leave_record();
  bool done();

  [[nodiscard]] bool find_caller();
  [[nodiscard]] bool read_next_frame();
  [[nodiscard]] bool read_record(std::uint64_t address, ExceptionRecord& to);
  [[nodiscard]] bool guard_holds() const;
  [[nodiscard]] bool object_is_one() const;
  [[nodiscard]] bool is_shown();
  void passed(const FrameView& view);
  void log(std::string_view tag) const;

  const ManagedThread& thread;
  const WalkFlags flags;
  Next next = Next::kStart;
  CrawlFrame frame;
  std::optional<Error> error;

  Place here;
  const Method* method = nullptr;
  Place caller;  // of `here` in `method`, once found
  bool caller_found = false;
  bool outermost = false;     // it has none
  bool from_managed = false;  // kNative: called the method that was shown last
  bool first = true;
  bool faulted = false;  // what comes next has

  std::uint64_t next_frame;
  std::uint64_t cookie;
  std::uint64_t next_record;
  std::optional<FrameView> view;                                // the frame at next_frame, once read
  std::uint64_t skip_to = 0;                                    // kSkipFunclets: nothing is shown before this CFA
  bool skipping = false;                                        // and before a record says which
  std::uint64_t reported = 0;                                   // CFA of a frame whose roots a funclet has reported
  std::uint64_t lowest = 0;                                     // sp of what was last left: stacks move up
  unsigned number = 0;                                          // of the frames considered
  std::unique_ptr<walk::Scratch, walk::ReturnScratch> scratch;  // for its kept rows
  std::optional<StackWalker> native;                            // made when first needed
};

// Of a frame in `method`: the caller, with what `here.saved` said of registers that the frame left alone. False without
// an error: it has none.
[[nodiscard]] Expected<bool> unwind_method(const ManagedThread& thread, const Method& method, const Place& here,
                                           walk::Scratch& scratch, Place& caller);
// Notes that the place's registers are saved in the SavedContext at an address.
void save_in(std::uint64_t context, Place& place);
// Where an explicit frame leads.
[[nodiscard]] Expected<void> unwind_frame(const ManagedThread& thread, const FrameView& view, Place& caller);

// The log. Nothing is formatted while there is none.
[[nodiscard]] bool walk_is_logged();
void write_log(std::string_view line);
template <typename... Argument>
void log_walk(fmt::format_string<Argument...> format, Argument&&... argument) {
  char line[512];
  const auto end = fmt::format_to_n(line, sizeof line, format, std::forward<Argument>(argument)...);
  write_log({line, std::min(end.size, sizeof line)});
}

}  // namespace windlass::managed
