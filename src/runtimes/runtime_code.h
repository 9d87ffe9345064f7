// The common part of all managed runtimes that are read from outside. Methods are found by address in the runtime's own
// structures, copied together with the description of their frames, and offered as published code of the process.
//
// A runtime is a folder with the same files: `find` (is it in this process? which version?), `code_map` (pc -> method),
// `rows` (the frames of its code), `names`. Together they make a Runtime.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/timed_memory.h"
#include "flow/synthesis.h"
#include "lookup/sources/unwind_source.h"
#include "runtimes/published_code.h"

namespace windlass::runtimes {

// One method's code at the moment it was read. Later calls do not look into the process again.
class Method {
 public:
  virtual ~Method() = default;

  std::uint64_t begin = 0, end = 0;  // addresses in the process
  bool lasting = true;               // what is at these addresses stays this method for good
  std::string name;                  // empty: not known

  [[nodiscard]] bool contains(std::uint64_t address) const { return address >= begin && address < end; }
  // As sources::UnwindSource has them.
  [[nodiscard]] virtual Expected<void> row_at(std::uint64_t address, FrameRow& to) const = 0;
  virtual void for_each_row(sources::RowSink row, sources::ErrorSink report) const = 0;
  // The rows that row_at() has for frames that were interrupted, or for all that have called. Those that take long to
  // find may be missing. The first one of an address counts.
  virtual void for_each_ready_row(bool /*interrupted*/, sources::RowSink row) const {
    for_each_row(row, [](const Error&) {});
  }
  // The runtime's list of its outermost frames: may code of a file, C++ for example, be the caller of the frame at an
  // address? As frames are looked up. A stack that leaves the runtime's code by another frame has skipped some.
  [[nodiscard]] virtual bool may_be_outermost(std::uint64_t /*address*/) const { return true; }
  // That it takes here.
  [[nodiscard]] virtual std::size_t bytes() const = 0;
};

// One in a process. Used from one thread at a time.
class Runtime {
 public:
  virtual ~Runtime() = default;
  [[nodiscard]] virtual Architecture architecture() const = 0;
  // The method whose code contains an address. kNotFound: no method does, for example in a stub of the runtime. Any
  // other error says how the runtime's data is damaged.
  [[nodiscard]] virtual Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) = 0;
  // Of a method that is not lasting: is it still what method_at() would give?
  [[nodiscard]] virtual bool is_still(const Method& method) = 0;
  // Of a method in whose code many functions run, an interpreter's: which one, by the frame's registers and memory.
  // Nothing: the method is one function, or it is
  // not known.
  struct FrameFunction {
    std::uint64_t function = 0, place = 0;
    auto operator<=>(const FrameFunction&) const = default;
  };
  [[nodiscard]] virtual std::optional<FrameFunction> frame_function(const Method& /*method*/, std::uint64_t /*address*/,
                                                                    const Registers& /*frame*/,
                                                                    const Memory& /*memory*/) {
    return std::nullopt;
  }
  [[nodiscard]] virtual sources::NamedFunction name_of(const FrameFunction& /*function*/) { return {}; }
  // Does it say below what the kernel side needs?
  [[nodiscard]] virtual bool teaches() const { return false; }
  // What frame_function() reads of a frame at an address. Nothing: it cannot be said, or the method's row is not all
  // that the walk needs.
  [[nodiscard]] virtual std::optional<std::vector<wl_taken>> words_of(const Method& /*method*/, CodeAddress /*pc*/) {
    return std::nullopt;
  }
  // Of code of which it has no row: do its instructions alone say how it is left? Stubs in assembly are of this kind.
  [[nodiscard]] virtual bool is_told_by_code(const Method& /*method*/) const { return false; }
  // Of a method that is not lasting: a word that tells it from what may come to its place. Nothing: there is none.
  // ([address] & mask) == value as long as the method is there.
  struct Guard {
    std::uint64_t address = 0, mask = ~std::uint64_t{0}, value = 0;
  };
  [[nodiscard]] virtual std::optional<Guard> guard_of(const Method& /*method*/) { return std::nullopt; }
  // Methods that have come since the last call, complete ones, and the value of their guard then: at most so many that
  // do not last, and the others once.
  struct NewMethod {
    std::uint64_t begin = 0, guard = 0;
  };
  [[nodiscard]] virtual std::vector<NewMethod> new_methods(std::size_t /*most*/) { return {}; }
  // As PublishedCode::heap_of().
  [[nodiscard]] virtual std::optional<wl_code_heap> heap_of(std::uint64_t /*address*/) { return std::nullopt; }
  // A method's functions at an address: those inlined there, innermost first, then itself.
  virtual void functions_at(const Method& method, std::uint64_t /*address*/, std::vector<sources::NamedFunction>& to) {
    if (!method.name.empty()) to.push_back({method.name});
  }
  // Does functions_at() read nothing of the process? Then it may be asked of a method that is gone.
  [[nodiscard]] virtual bool names_the_past() const { return false; }
  // Its process has code there that is in no ELF file: is it the runtime's own?
  virtual void note_code(const os::ProcMap& /*map*/) {}
  // As PublishedCode has them.
  virtual void note_file_code(const os::ProcMap& /*map*/) {}
  [[nodiscard]] virtual std::vector<AddressRange> file_code() const { return {}; }
  // Of the file that it is in, if it has code there; empty: not known.
  [[nodiscard]] virtual std::string build_id() const { return {}; }
  // False: it is of a kind that is not understood, so that others may say something of its code.
  [[nodiscard]] virtual bool is_understood() const { return true; }
  // As UnwindSource has it.
  [[nodiscard]] virtual bool is_exact() const { return true; }
  // PublishedCode::way_to_stack(), is_starting() and holding_code().
  [[nodiscard]] virtual wl_way way_to_stack() { return {}; }
  [[nodiscard]] virtual bool is_starting() { return false; }
  [[nodiscard]] virtual std::vector<manager::PublishedCode::HoldingCode> holding_code() const { return {}; }
  // The problem of the runtime as a whole: all or part of its data is not understood.
  [[nodiscard]] virtual std::optional<Error> problem() const { return std::nullopt; }
};

// Answers for all generated code of the process for which no code manager answers. Comes before a jitdump, which has
// names of a runtime's code but no frames.
//
// A runtime keeps no past. So an answer for an earlier moment is the runtime's answer now. Code that was taken away
// before is not found. If other code is there by now (a method that does not last), that code is found. Methods that
// last stay known once found. For other methods, the last known is the answer if nothing can be read any more: the
// process has ended, or its runtime has been taken down. Bounds are kMaxMethods, and kMaxBytes of code and information.
// Above these, all are forgotten.
class RuntimeCode final : public manager::PublishedCode {
 public:
  static constexpr std::size_t kMaxMethods = std::size_t{1} << 17;
  static constexpr std::size_t kMaxBytes = std::size_t{128} << 20;
  static constexpr std::size_t kMaxFrameFunctions = std::size_t{1} << 20;  // later ones have no name
  static constexpr std::size_t kMaxAnswers = std::size_t{1} << 16;

  // `memory` is that of the process, by which the runtime reads, and `timed` the same if it is one. `map` is the first
  // mapping of the runtime's image.
  RuntimeCode(std::unique_ptr<Runtime> runtime, std::shared_ptr<const Memory> memory, const os::ProcMap& map,
              const TimedMemory* timed = nullptr);

  std::uint64_t begin() const override { return 0; }
  std::uint64_t end() const override;
  std::uint64_t rank() const override { return ~std::uint64_t{0} - (runtime_->is_exact() ? 1 : 2); }
  void set_time(std::uint64_t time) override;
  std::uint64_t functions_at(std::uint64_t address, std::uint64_t function, std::uint64_t time,
                             std::vector<sources::NamedFunction>& to) override;
  std::uint64_t frame_function(std::uint64_t address, const Registers& frame, const Memory& memory) override;
  void note_code(const os::ProcMap& map) override;
  bool teaches() const override;
  std::optional<wl_learned> lesson(CodeAddress pc) override;
  std::vector<Lessons> lessons_around(CodeAddress pc) override;
  std::vector<std::uint64_t> new_functions(std::size_t most) override;
  std::optional<wl_code_heap> heap_of(std::uint64_t address) override;
  bool may_be_outermost(std::uint64_t address) override;
  wl_way way_to_stack() override;
  bool is_starting() override;
  std::vector<HoldingCode> holding_code() const override;
  void note_file_code(const os::ProcMap& map) override;
  std::vector<AddressRange> file_code() const override;
  std::optional<Error> problem() const override;
  std::unique_ptr<sources::UnwindSource> make_source() override;

 private:
  class Source;
  struct Known {
    std::shared_ptr<const Method> method;
    std::uint64_t seen = 0;  // when it was last known to be there
  };

  void see(std::uint64_t time) const;
  [[nodiscard]] std::uint64_t function_number(const Method& method, std::uint64_t address, const Registers& frame,
                                              const Memory& memory);
  [[nodiscard]] Expected<std::shared_ptr<const Method>> method_at(std::uint64_t address);
  // method_at(), else the last method that is known to have been there; null: none.
  [[nodiscard]] std::shared_ptr<const Method> named_method_at(std::uint64_t address);
  void keep(const std::shared_ptr<const Method>& method, std::uint64_t seen);
  [[nodiscard]] std::optional<FrameRow> row_by_code(const Method& method, CodeAddress pc);
  [[nodiscard]] std::optional<wl_learned> lesson_of(const Method& method, const FrameRow& row, CodeAddress pc);
  [[nodiscard]] bool is_last(const Method& method) const;

  mutable std::mutex lock_;
  std::unique_ptr<Runtime> runtime_;
  std::shared_ptr<const Memory> memory_;
  const TimedMemory* timed_;              // memory_; may be null
  flow::OwnScratch scratch_;              // null until code is followed
  std::map<std::uint64_t, Known> known_;  // by begin; disjoint
  std::size_t bytes_ = 0;
  mutable std::uint64_t needed_ = 0;  // the latest time that was asked for: what was seen before says nothing of it
  std::map<Runtime::FrameFunction, std::uint64_t> frame_functions_;  // to their numbers, from 1 on
  std::vector<sources::NamedFunction> frame_names_;                  // by number - 1
  struct Answer {
    std::uint64_t number = 0, seen = 0;
  };
  std::unordered_map<std::uint64_t, Answer> answers_;  // of function_number(), by method and words of the frame
};

}  // namespace windlass::runtimes
