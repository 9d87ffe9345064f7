// One exception under way. It stands on the stack of who throws, and its record is in the thread's list.
#pragma once

#include <optional>

#include "windlass/managed/exception.h"

namespace windlass::managed {

class Dispatch {
 public:
  Dispatch(ThrowingThread& thread, const Thrown& thrown, const Registers& thrower);
  Dispatch(const Dispatch&) = delete;
  Dispatch& operator=(const Dispatch&) = delete;

  [[noreturn]] void run();

  [[nodiscard]] static Dispatch* innermost(const ThrowingThread& thread) {
    return static_cast<Dispatch*>(thread.dispatch);
  }
  // That whose catch funclet runs; null: none does.
  [[nodiscard]] static Dispatch* catching(const ThrowingThread& thread);
  [[nodiscard]] std::uint64_t object() const { return record_.object; }

 private:
  // Where the first pass has ended: at a clause of a frame, or at a filter that threw.
  struct Target {
    std::uint64_t cfa = 0;
    std::size_t clause = 0;
    Dispatch* filter = nullptr;
  };
  // What is left of it where native code is unwound, while the stack that this stands on is used again.
  struct Moved;

  [[nodiscard]] bool search();
  [[nodiscard]] bool search_frame(const CrawlFrame& frame);
  [[nodiscard]] bool goes_through(const CrawlFrame& marker);
  [[noreturn]] void unwind();
  void clean_up(const CrawlFrame& frame);
  [[noreturn]] void finish(const CrawlFrame& frame);
  [[noreturn]] void finish_filter(Dispatch& dispatch);
  void supersede(std::uint64_t record);
  [[noreturn]] void unhandled();
  [[noreturn]] void give_up(const Error& why);
  void check_native(const CrawlFrame& marker);

  [[nodiscard]] std::uint64_t call(const CrawlFrame& frame, std::size_t clause, Funclet funclet, std::uint64_t code);
  [[nodiscard]] std::size_t first_clause(const CrawlFrame& frame) const;
  void note_record(const CrawlFrame& transition);
  [[nodiscard]] std::uint64_t frames_above(std::uint64_t address) const;
  [[noreturn]] void land(const Registers& registers, std::uint64_t record, Dispatch* dispatch, std::uint64_t frames);
  [[nodiscard]] static Dispatch* of(const ThrowingThread& thread, std::uint64_t record);

  [[noreturn]] void leave_through_native(const CrawlFrame& marker);
  [[noreturn]] static void unwind_native(Moved* moved);
  [[noreturn]] static void go_on(Moved* moved, const Registers& registers);

  ThrowingThread& thread_;
  Dispatch* older_;
  Thrown thrown_;
  Target target_;
  ExceptionRecord record_;
  std::optional<ManagedWalker> walker_;  // of the pass at hand
  std::optional<Error> cannot_unwind_;   // native code that the first pass went through
  std::uint64_t frames_;                 // the thread's list when it was thrown
  std::size_t clause_ = 0;               // whose funclet runs, in record_.establisher's frame
  // Of the frame whose funclet threw, the walk being at it: what lies around the clause may catch.
  std::uint64_t thrown_in_ = 0;
  std::size_t thrown_in_clause_ = 0;
  std::uint64_t back_[Registers::kSlots] = {};  // to behind the call of a funclet
};

}  // namespace windlass::managed
