// Where a managed walk stands.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string_view>
#include <utility>

#include "managed/install.h"
#include "walk/scratch_pool.h"
#include "walk/unwinders.h"
#include "windlass/managed/walk.h"

namespace windlass::managed {

// Code at a moment: registers, and where callees have saved them.
struct Place {
  Registers registers;
  SavedLocations saved;
};

// What comes of one turn of a walk.
enum class Turn : std::uint8_t { kShow, kGoOn, kEnd };
struct Ended {
  operator Turn() const {
    return Turn::kEnd;
  }                                        // NOLINT(google-explicit-constructor): what a turn, or a part of it, returns
  operator bool() const { return false; }  // NOLINT(google-explicit-constructor)
};

struct ManagedWalker::State {
  State(const ManagedThread& its_thread, const Registers& registers, WalkFlags its_flags);

  enum class Next : std::uint8_t {
    kStart,
    kMethod,    // the walk is in `method`, which has not been shown
    kCaller,    // it has
    kNative,    // it is in native code, or nowhere
    kFrame,     // the explicit frame at hand has been shown
    kRecord,    // the exception record at hand has been shown
    kFunction,  // a native frame has been shown
    kDone,
  };

  [[nodiscard]] bool has(WalkFlags flag) const { return (flags & flag) != 0; }
  [[nodiscard]] bool wants_places() const { return (flags & (kQuickUnwind | kLightUnwind)) == 0; }
  bool advance();
  Ended failed(const Error& why);
  void enter();
  void enter(const Place& place);
  void describe(CrawlState as);

  Turn start();
  Turn show_method();
  [[nodiscard]] bool pass_records(std::uint64_t cfa);
  Turn leave_method();
  Turn show_native();
  [[nodiscard]] SavedLocations saved_past_native() const;
  Turn show_native_frame();
  Turn leave_native_frame();
  Turn show_frame(CrawlState as);
  Turn leave_frame();
  Turn show_record();
  Turn leave_record();
  Ended done();

  [[nodiscard]] bool find_caller();
  [[nodiscard]] bool unwind();
  [[nodiscard]] std::uint64_t caller_sp() const;
  [[nodiscard]] Turn go_on_above(std::uint64_t address, const char* otherwise);
  [[nodiscard]] bool go_to_caller();
  [[nodiscard]] bool read_next_frame();
  [[nodiscard]] bool read_record(std::uint64_t address, ExceptionRecord& to);
  [[nodiscard]] bool guard_holds() const;
  [[nodiscard]] bool object_is_one() const;
  [[nodiscard]] bool is_shown();
  void passed(const FrameView& view);
  void log(std::string_view tag) const;
  void log_unwind(std::string_view tag, const Method& of) const;

  const ManagedThread& thread;
  const WalkFlags flags;
  Next next = Next::kStart;
  CrawlFrame frame;  // its registers, and where they are saved, are where the walk stands
  std::optional<Error> error;

  const Method* method = nullptr;       // that contains the pc
  bool caller_found = false;            // the caller is known:
  bool outermost = false;               // it has none,
  const walk::KeptRow* kept = nullptr;  // or is found by this row,
  Place caller;                         // or is this
  std::uint64_t generation = 0;         // of the rows; 0: none are kept
  bool from_managed = false;            // kNative: called the method that was shown last
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
// an error: it has none. A row by which it was found is kept in `rows` for `generation`.
[[nodiscard]] Expected<bool> unwind_method(const ManagedThread& thread, const Method& method, const CrawlFrame& here,
                                           walk::RowCache& rows, std::uint64_t generation, Place& caller);
// A caller that was found behind a return address which was replaced. True: it was.
inline bool see_through_hijack(const ManagedThread& thread, Registers& registers, const SavedLocations& saved) {
  const Hijack& hijack = thread.hijack;
  if (hijack.slot == 0 || (saved.at(registers, Registers::pc_number(registers.architecture())) != hijack.slot &&
                           !(thread.space->is_own_process() && is_hijacked_return(registers))))
    return false;
  registers.set_pc(CodeAddress::return_address(hijack.original));
  return true;
}
// Unwinds native code, from where it stands to the managed code that called it. kNotFound: none did.
[[nodiscard]] Expected<Place> managed_caller(const ManagedThread& thread, const Registers& from);
// Notes that the place's registers are saved in the SavedContext at an address.
void save_in(std::uint64_t context, Place& place);
// Where an explicit frame leads.
[[nodiscard]] Expected<void> unwind_frame(const ManagedThread& thread, const FrameView& view, Place& caller);

// The log. Nothing is formatted while there is none.
extern std::atomic<WalkLog> the_log;
[[nodiscard]] inline bool walk_is_logged() { return the_log.load(std::memory_order_relaxed) != nullptr; }
void write_log(std::string_view line);
template <typename... Argument>
void log_walk(std::uint64_t thread, unsigned number, fmt::format_string<Argument...> format, Argument&&... argument) {
  char line[512];
  const auto head = fmt::format_to_n(line, sizeof line, "TID {:04x}: STACKWALK: [{:03x}] ", thread, number);
  const auto end = fmt::format_to_n(head.out, sizeof line - head.size, format, std::forward<Argument>(argument)...);
  write_log({line, std::min(head.size + end.size, sizeof line)});
}

}  // namespace windlass::managed
