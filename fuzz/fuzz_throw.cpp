// Input: exception tables of three methods that call one another, and what their filters, cleanups and handlers do:
// each clause is 2 bytes (its kind; whether it protects the call; which object it catches), three of each method, and
// each funclet that runs takes the next byte. The innermost method throws. What runs, and in which order, is what a
// plain model of two passes says (ECMA-335, I.12.4.2.5), which knows nothing of stacks.
#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "check.h"
#include "support/code_by_hand.h"
#include "windlass/backtrace.h"

WINDLASS_MANAGED_METHOD(method_0)
WINDLASS_MANAGED_METHOD(method_1)
WINDLASS_MANAGED_METHOD(method_2)

// A filter, a handler and a cleanup for each of a method's clauses, and one handler for all, of the outermost method.
#define FUNCLETS(m, c)                                     \
  WINDLASS_FUNCLET(filter_##m##_##c, run_filter_##m##_##c) \
  WINDLASS_FUNCLET(catch_##m##_##c, run_catch_##m##_##c)   \
  WINDLASS_FUNCLET(clean_##m##_##c, run_clean_##m##_##c)
#define FUNCLETS_OF(m) FUNCLETS(m, 0) FUNCLETS(m, 1) FUNCLETS(m, 2)
WINDLASS_FUNCLET(last_catch, run_last_catch)
FUNCLETS_OF(0)
FUNCLETS_OF(1)
FUNCLETS_OF(2)

namespace {
using namespace windlass;
using namespace windlass::managed;

constexpr std::size_t kMethods = 3, kClauses = 3;
struct Code {
  const char *begin, *end;
};
struct FuncletCode {
  Code filter, handler, cleanup;
};
#define CODE(name) \
  Code { name, name##_end }
#define CODES(m, c) \
  { CODE(filter_##m##_##c), CODE(catch_##m##_##c), CODE(clean_##m##_##c) }
const FuncletCode kFunclets[kMethods][kClauses] = {{CODES(0, 0), CODES(0, 1), CODES(0, 2)},
                                                   {CODES(1, 0), CODES(1, 1), CODES(1, 2)},
                                                   {CODES(2, 0), CODES(2, 1), CODES(2, 2)}};
const char* const kTry[kMethods] = {method_0_try, method_1_try, method_2_try};
const char* const kResume[kMethods] = {method_0_resume, method_1_resume, method_2_resume};

// What the funclets do, byte for byte; when there are no more they do nothing, and filters say no.
class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  std::uint8_t next() { return at_ < size_ ? data_[at_++] : 0; }

 private:
  const std::uint8_t* data_;
  std::size_t size_, at_ = 0;
};

struct Tables {
  std::vector<Clause> of[kMethods];
};

// ---- the model ----------------------------------------------------------------------------------------------------

class Model {
 public:
  Model(const Tables& tables, Script script) : tables_(tables), script_(script) {}

  // An object is thrown out of a method's clauses from `first` on. Returns the method that goes on.
  std::size_t propagate(std::uint64_t object, std::size_t method, std::size_t first) {
    std::size_t target_method = method, target_clause = 0;
    while (!search(object, target_method, target_method == method ? first : 0, target_clause)) --target_method;
    for (std::size_t at = method;; --at) {
      const bool last = at == target_method;
      const auto& clauses = tables_.of[at];
      for (std::size_t i = at == method ? first : 0; i < (last ? target_clause : clauses.size()); ++i) {
        if (clauses[i].end == 0 || clauses[i].kind < ClauseKind::kFinally) continue;
        note('u', at, i, object);
        if (const std::uint8_t does = script_.next(); does % 4 == 1) return propagate(does, at, behind(clauses, i));
      }
      if (last) break;
    }
    note('h', target_method, target_clause, object);
    const auto& clauses = tables_.of[target_method];
    if (target_method == 0 && target_clause + 1 == clauses.size()) return 0;  // the last one goes on
    const std::uint8_t does = script_.next();
    if (does % 4 == 1) return propagate(does, target_method, behind(clauses, target_clause));
    if (does % 4 == 2) return propagate(object, target_method, behind(clauses, target_clause));  // once more
    return target_method;
  }
  std::string events;

 private:
  bool search(std::uint64_t object, std::size_t method, std::size_t first, std::size_t& clause) {
    const auto& clauses = tables_.of[method];
    for (clause = first; clause < clauses.size(); ++clause) {
      const Clause& it = clauses[clause];
      if (it.end == 0 || it.kind >= ClauseKind::kFinally) continue;
      if (it.kind == ClauseKind::kCatch) {
        if (it.user == 0 || it.user == object % 4) return true;
        continue;
      }
      note('f', method, clause, object);
      if (script_.next() % 4 == 3) return true;  // else it says no, or throws, which is no
    }
    return false;
  }
  // What runs is behind, with all those of its try: nothing is left of a table here but what is around it, the last
  // one.
  static std::size_t behind(const std::vector<Clause>& clauses, std::size_t running) {
    const auto is_left = [&](const Clause& it) { return it.end > clauses[running].end; };
    return static_cast<std::size_t>(
        std::find_if(clauses.begin() + static_cast<std::ptrdiff_t>(running), clauses.end(), is_left) - clauses.begin());
  }
  void note(char what, std::size_t method, std::size_t clause, std::uint64_t object) {
    events +=
        {what, static_cast<char>('0' + method), static_cast<char>('0' + clause), static_cast<char>('A' + object % 26)};
  }

  const Tables& tables_;
  Script script_;
};

// ---- the library --------------------------------------------------------------------------------------------------

class Any : public Personality {
 public:
  bool catches(const CrawlFrame&, const Clause& clause, const Thrown& thrown) override {
    return clause.user == 0 || clause.user == thrown.object % 4;
  }
};

struct Real {
  Real(const Tables& its_tables, Script its_script) : tables(its_tables), script(its_script) {
    const Code methods[] = {{reinterpret_cast<const char*>(&method_0), method_0_end},
                            {reinterpret_cast<const char*>(&method_1), method_1_end},
                            {reinterpret_cast<const char*>(&method_2), method_2_end}};
    for (std::size_t m = 0; m < kMethods; ++m) {
      Method& method = runtime.add(m, methods[m].begin, methods[m].end);
      method.clauses = tables.of[m];
      for (const FuncletCode& funclet : kFunclets[m]) {
        runtime.add(m, funclet.filter.begin, funclet.filter.end, Funclet::kFilter, &method);
        runtime.add(m, funclet.handler.begin, funclet.handler.end, Funclet::kCatch, &method);
        runtime.add(m, funclet.cleanup.begin, funclet.cleanup.end, Funclet::kFinally, &method);
      }
      if (m == 0) runtime.add(m, last_catch, last_catch_end, Funclet::kCatch, &method);
    }
    thread.walk = {.space = &own_process(), .runtime = &runtime, .own_list = &frames};
    thread.personality = &personality;
  }
  const Tables& tables;
  Script script;
  HandRuntime runtime;
  FrameList frames;
  Any personality;
  ThrowingThread thread;
  std::string events;
};
Real* real = nullptr;

void throw_first(const void*) { raise(real->thread, 5); }

std::uint64_t run(char what, std::size_t method, std::size_t clause, std::uint64_t object) {
  Real& it = *real;
  it.events +=
      {what, static_cast<char>('0' + method), static_cast<char>('0' + clause), static_cast<char>('A' + object % 26)};
  const auto resume = reinterpret_cast<std::uint64_t>(kResume[method]);
  if (what == 'h' && method == 0 && clause + 1 == it.tables.of[0].size()) return resume;
  const std::uint8_t does = it.script.next();
  if (does % 4 == 1) raise(it.thread, does);
  if (what == 'h' && does % 4 == 2) rethrow(it.thread);
  if (what == 'f') return does % 4 == 3 ? 1 : 0;
  return what == 'h' ? resume : 0;
}

std::string real_events(const Tables& tables, Script script, std::size_t& goes_on) {
  Real it(tables, script);
  real = &it;
  const Call third{reinterpret_cast<void*>(&throw_first), nullptr};
  const Call second{reinterpret_cast<void*>(&method_2), &third};
  const Call first{reinterpret_cast<void*>(&method_1), &second};
  // A method that comes back by its handler returns its call, which its callers do not look at.
  const std::uint64_t result = method_0(&first);
  goes_on = result == reinterpret_cast<std::uint64_t>(&first) ? 0 : 1;
  FUZZ_CHECK(it.frames.top == kEndOfFrames && it.thread.walk.exceptions == kEndOfFrames &&
             it.thread.dispatch == nullptr);
  return it.events;
}

}  // namespace

#define RUN(m, c)                                                                                                      \
  extern "C" std::uint64_t run_filter_##m##_##c(std::uint64_t, std::uint64_t object) {                                 \
    return run('f', m, c, object);                                                                                     \
  }                                                                                                                    \
  extern "C" std::uint64_t run_catch_##m##_##c(std::uint64_t, std::uint64_t object) { return run('h', m, c, object); } \
  extern "C" std::uint64_t run_clean_##m##_##c(std::uint64_t, std::uint64_t object) { return run('u', m, c, object); }
#define RUN_OF(m) RUN(m, 0) RUN(m, 1) RUN(m, 2)
RUN_OF(0) RUN_OF(1) RUN_OF(2) extern "C" std::uint64_t run_last_catch(std::uint64_t, std::uint64_t object) {
  return run('h', 0, kClauses, object);
}

// Frames of the list and exceptions under way are where the stack says.
extern "C" const char* __asan_default_options() { return "detect_stack_use_after_return=0"; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kTable = 2 * kMethods * kClauses;
  if (size < kTable) return 0;
  Tables tables;
  for (std::size_t m = 0; m < kMethods; ++m) {
    const char* begins[] = {reinterpret_cast<const char*>(&method_0), reinterpret_cast<const char*>(&method_1),
                            reinterpret_cast<const char*>(&method_2)};
    const auto at = static_cast<std::uint32_t>(kTry[m] - begins[m]);
    for (std::size_t c = 0; c < kClauses; ++c) {
      const std::uint8_t* stored = data + 2 * (m * kClauses + c);
      const FuncletCode& code = kFunclets[m][c];
      Clause& clause = tables.of[m].emplace_back();
      clause.kind = static_cast<ClauseKind>(stored[0] % 4);
      clause.begin = at;
      clause.end = (stored[0] & 4) != 0 ? at : at + 8;
      if ((stored[0] & 4) != 0) clause.begin = clause.end = 0;  // protects nothing
      const Code& handler = clause.kind < ClauseKind::kFinally ? code.handler : code.cleanup;
      clause.handler = reinterpret_cast<std::uint64_t>(handler.begin);
      clause.filter = reinterpret_cast<std::uint64_t>(code.filter.begin);
      clause.user = stored[1] % 4;
    }
  }
  const auto last = static_cast<std::uint32_t>(kTry[0] - reinterpret_cast<const char*>(&method_0)) - 1;
  tables.of[0].push_back({.begin = last,
                          .end = last + 16,
                          .handler = reinterpret_cast<std::uint64_t>(static_cast<const char*>(last_catch))});
  const Script script(data + kTable, size - kTable);
  Model model(tables, script);
  const std::size_t expected = model.propagate(5, kMethods - 1, 0);
  std::size_t goes_on = 0;
  const std::string events = real_events(tables, script, goes_on);
  if (events != model.events) std::fprintf(stderr, "expected %s\nwas      %s\n", model.events.c_str(), events.c_str());
  FUZZ_CHECK(events == model.events);
  FUZZ_CHECK((goes_on == 0) == (expected == 0));
  return 0;
}
