// What lilt's compiled code runs on: objects and their collector, functions and their code, threads, exceptions. All
// that looks at a stack is Windlass's: see README.md for which part is where.
#pragma once

#include <windlass/jit/code_manager.h>
#include <windlass/jit/registration.h>
#include <windlass/managed/exception.h>
#include <windlass/managed/gc_roots.h>
#include <windlass/managed/suspension.h>

#include <atomic>
#include <ctime>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ast.h"

namespace lilt {

using Word = std::uint64_t;

struct Options {
  bool gc_stress = false;       // collects at every allocation and every call
  bool check_stacks = false;    // keeps a shadow stack, and compares every walk with it
  bool windows_unwind = false;  // walks go by Windows unwind information, not by rows
  bool gdb = false;
  long seconds = 0;              // runs the program again until they have gone by
  long sample_us = 0;            // compares in a signal handler, so often
  std::uint32_t tier_up = 1000;  // calls until a function is compiled again; 0: never
  std::uint32_t again = 0;       // and so many later once more, and so on; 0: never
  std::size_t heap = 32u << 20;
};

// ---- objects ------------------------------------------------------------------------------------------------------

struct TypeInfo {
  enum Shape : std::uint8_t { kFields, kReferences, kWords, kBytes } shape = kFields;
  std::string name;
  std::vector<bool> references;  // kFields: which of them are
};

// A word of header: the type, or with bit 0 where a collection has moved it. Then fields; of arrays and strings the
// length and the elements.
struct Object {
  Word header;
  Word words[1];
  [[nodiscard]] const TypeInfo& type() const { return *reinterpret_cast<const TypeInfo*>(header); }
  [[nodiscard]] std::string_view text() const { return {reinterpret_cast<const char*>(words + 1), words[0]}; }
};
std::size_t size_of(const TypeInfo& type, Word length);

// Two halves; the live objects of one are copied to the other.
class Heap {
 public:
  explicit Heap(std::size_t half);
  [[nodiscard]] Object* allocate(std::size_t size);  // null: full
  void flip();
  void forward(Word& reference);
  void scan();  // what was forwarded
  std::atomic<std::uint64_t> collections = 0;

 private:
  std::size_t half_;
  std::byte *now_, *other_;
  std::byte *old_begin_ = nullptr, *scanned_ = nullptr;
  std::atomic<std::size_t> used_ = 0;
};

// ---- code ---------------------------------------------------------------------------------------------------------

struct Code;
// What calls go through, and where closures point to.
struct Cell {
  std::atomic<Word> entry = 0;
  std::atomic<std::int32_t> calls_left = 0;
  int tier = 0;
  Function* function = nullptr;
  const TypeInfo* closure = nullptr;
  Code* code = nullptr;
};

// One method or funclet as the library knows it, and what the checks need.
struct Piece {
  windlass::managed::Method method;
  std::string name;
  std::vector<std::byte> roots;
  std::vector<windlass::managed::Clause> clauses;
  std::vector<windlass::FrameRow> rows;
  std::vector<windlass::winarm64::RuntimeFunction> entries;
  Word body_begin = 0, body_end = 0;  // where the shadow stack has it
  bool returns_reference = false;
};

// All that was compiled of a function at a time.
struct Code {
  Word begin = 0;
  std::size_t size = 0;
  std::deque<Piece> pieces;  // the method first
  windlass::RegistrationId debugger = windlass::RegistrationId::kNone;
  bool seen = false;
};

// ---- threads ------------------------------------------------------------------------------------------------------

struct Shadow {
  Word id, cfa;
};

class Runtime;
// What kThread points to in compiled code.
struct Thread {
  Shadow* shadow = nullptr;
  Word depth = 0;            // of the shadow stack
  volatile int leaving = 0;  // calls from native code that an exception is about to go through
  Runtime* runtime = nullptr;
  windlass::managed::MutatorThread* mutator = nullptr;
  std::vector<std::string>* trace = nullptr;  // of the exception thrown last
  std::optional<timer_t> sampler;

  void sample_later() const;
};

// ---- the runtime --------------------------------------------------------------------------------------------------

class Runtime : public windlass::managed::Runtime,
                public windlass::managed::SafePoints,
                public windlass::managed::Personality,
                public Host {
 public:
  explicit Runtime(const Options& options);
  ~Runtime() override;

  void compile(const std::string& source);
  void run_main();
  void run_thread(Word closure_at, Word argument);  // a new native thread
  void report() const;

  // ---- for compiled code
  Object* allocate(Thread& thread, const TypeInfo& type, Word length);
  Object* text(Thread& thread, std::string_view bytes);
  [[noreturn]] void raise_error(Thread& thread, std::string_view message);
  void collect(Thread& thread);
  void collect_now(std::uint64_t seen);
  void tier_up(Thread& thread, Cell& cell);
  // `cell` none: the closure that is the first argument. In managed mode.
  Word call(Thread& thread, const Cell* cell, const Word (&arguments)[6]);
  // Where the thread may be stopped, and a collector run: references that are used behind it are given.
  template <typename F, typename... Reference>
  void in_native(Thread& thread, F&& work, Reference*... references);
  const TypeInfo& array_of(TypeRef element) const { return element->is_reference() ? references_ : words_; }
  const TypeInfo& info(TypeRef type);
  Object* literal(const std::string& text);
  void check_stack(const windlass::Registers& registers, Thread& thread);
  static void handle_samples();
  void explain(const windlass::Registers& registers, const Thread& thread) const;
  const Piece* piece_at(Word pc) const;

  // ---- asked by the library
  const windlass::managed::Method* find(Word pc) const override;
  bool is_safe_point(const windlass::managed::Method&, Word) const override { return false; }
  bool can_hijack(const windlass::managed::Method& method) const override {
    return method.funclet == windlass::managed::Funclet::kNone;
  }
  bool returns_reference(const windlass::managed::Method& method) const override;
  bool catches(const windlass::managed::CrawlFrame& frame, const windlass::managed::Clause& clause,
               const windlass::managed::Thrown& thrown) override;
  void trace(const windlass::managed::CrawlFrame& frame, const windlass::managed::Thrown& thrown) override;
  Word base(const windlass::managed::CrawlFrame& frame) const override;
  windlass::managed::NativePolicy at_native(const windlass::managed::CrawlFrame& frame,
                                            const windlass::managed::Thrown& thrown) override;
  void unhandled(const windlass::managed::Thrown& thrown) override;

  // ---- asked by the checker
  void made(Function& function) override;

  const Options options;
  Program program;
  Heap heap;
  windlass::managed::Suspender suspender;
  std::atomic<std::uint64_t> checked = 0, wrong = 0, frames_checked = 0, compiled = 0, freed = 0;

 private:
  friend class Attached;
  static constexpr std::size_t kCodeSize = 16u << 20, kGranule = 64;
  void compile(Cell& cell, int tier);
  void publish(Code& code);
  void release_unused(const std::vector<windlass::managed::MutatorThread*>& threads);
  Word take_space(std::size_t size);

  TypeInfo references_{TypeInfo::kReferences, "array", {}}, words_{TypeInfo::kWords, "array", {}},
      string_{TypeInfo::kBytes, "string", {}};
  std::map<TypeRef, TypeInfo> structs_;
  std::deque<TypeInfo> closures_;
  std::deque<Cell> cells_;
  std::map<std::string, std::vector<Word>> literals_;
  std::vector<Cell*> to_compile_;

  std::mutex compiling_;
  Word code_;
  std::size_t code_used_ = 0;
  std::multimap<std::size_t, Word> free_;
  std::unique_ptr<std::atomic<const Piece*>[]> pieces_;
  std::vector<std::unique_ptr<Code>> codes_, retired_;
  std::optional<windlass::CodeManager> manager_;
  std::unique_ptr<windlass::Registrar> debugger_;
  Cell* main_ = nullptr;
};

// A helper's native part. Registers in which compiled code keeps something are saved first, so that a collector finds
// them, and what it has made of them is loaded behind it.
template <typename F, typename... Reference>
void Runtime::in_native(Thread& thread, F&& work, Reference*... references) {
  auto body = [&] {
    windlass::managed::HelperFrame<sizeof...(Reference)> frame(references...);
    windlass::managed::capture(frame);
    const windlass::managed::Pushed pushed(thread.mutator->frames, frame);
    suspender.enter_native(*thread.mutator);
    work();
    suspender.leave_native(*thread.mutator);
  };
  windlass::managed::windlass_call_saving_registers([](void* argument) { (*static_cast<decltype(body)*>(argument))(); },
                                                    &body);
}

// The calling thread as one of the runtime's, while this lives.
class Attached {
 public:
  explicit Attached(Runtime& runtime);
  ~Attached();
  Thread thread;

 private:
  windlass::managed::MutatorThread mutator_;
  std::unique_ptr<Shadow[]> shadow_;
  std::vector<std::string> trace_;
  void start_sampling();
};

// `place` is asked once for room.
using Place = Word (*)(void* user, std::size_t size);
std::unique_ptr<Code> generate(Runtime& runtime, Cell& cell, int tier, Place place, void* user);

}  // namespace lilt
