// What compiled code calls: strings, printing, native functions.
#include "helpers.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <thread>

namespace lilt::helpers {

using namespace windlass::managed;

namespace {

const Object& object(Word reference) { return *reinterpret_cast<const Object*>(reference); }
Word word(const Object* made) { return reinterpret_cast<Word>(made); }

std::string shown(Word value, Word kind) {
  char text[40] = "";
  switch (static_cast<Kind>(kind)) {
    case Kind::kInt: std::snprintf(text, sizeof text, "%ld", static_cast<long>(value)); break;
    case Kind::kDouble: std::snprintf(text, sizeof text, "%.9f", std::bit_cast<double>(value)); break;
    case Kind::kBool: return value != 0 ? "true" : "false";
    default: return std::string(object(value).text());
  }
  return text;
}

}  // namespace

Word allocate(Thread* thread, const TypeInfo* type, Word length) {
  return word(thread->runtime->allocate(*thread, *type, length));
}

Word join(Thread* thread, Word left, Word right) {
  if (left == 0 || right == 0) trap(thread, kNull);
  return word(thread->runtime->text(*thread, std::string(object(left).text()) + std::string(object(right).text())));
}

Word equal(Thread*, Word left, Word right) {
  return left == right || (left != 0 && right != 0 && object(left).text() == object(right).text()) ? 1 : 0;
}

Word text(Thread* thread, Word value, Word kind) { return word(thread->runtime->text(*thread, shown(value, kind))); }

Word substring(Thread* thread, Word string, Word from, Word length) {
  const std::string_view whole = object(string).text();
  if (from > whole.size() || length > whole.size() - from) trap(thread, kBounds);
  return word(thread->runtime->text(*thread, std::string(whole.substr(from, length))));
}

Word character(Thread* thread, Word string, Word at) {
  const std::string_view whole = object(string).text();
  if (at >= whole.size()) trap(thread, kBounds);
  return static_cast<unsigned char>(whole[at]);
}

Word print(Thread* thread, Word value, Word kind) {
  const std::string line = shown(value, kind) + "\n";
  thread->runtime->in_native(*thread, [&] { std::fputs(line.c_str(), stdout); });
  return 0;
}

Word collect(Thread* thread) {
  thread->runtime->collect(*thread);
  return 0;
}

// Comes back from native mode, which waits while threads are stopped.
void poll(Thread* thread) {
  thread->runtime->in_native(*thread, [] {});
}

void tier_up(Thread* thread, Cell* cell) { thread->runtime->tier_up(*thread, *cell); }

Word clock(Thread*) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<Word>(now.tv_sec) * 1'000'000'000 + static_cast<Word>(now.tv_nsec);
}

Word depth(Thread* thread) {
  Word count = 0;
  ManagedWalker walker(thread->mutator->walk, windlass::capture_registers(), kSkipFunclets | kNativeFrames);
  while (walker.next()) count += walker.frame().frameless() ? 1 : 0;
  return count;
}

// ---- exceptions ---------------------------------------------------------------------------------------------------

void trap(Thread* thread, Word which) {
  static const char* const kMessages[kTraps] = {"null reference", "index out of bounds", "division by zero"};
  thread->runtime->raise_error(*thread, kMessages[which]);
}

void throw_object(Thread* thread, Word thrown) {
  thread->trace->clear();
  raise(*thread->mutator, thrown);
}

void throw_again(Thread* thread) { rethrow(*thread->mutator); }

// ---- native code, and back ----------------------------------------------------------------------------------------

namespace {

struct Sorting {
  Thread* thread;
  const Word* closure;
};
thread_local const Sorting* sorting = nullptr;

// What qsort calls: back into compiled code, from native mode, and out again.
int compare(const void* left, const void* right) {
  const Sorting& now = *sorting;
  Runtime& runtime = *now.thread->runtime;
  runtime.suspender.leave_native(*now.thread->mutator);
  const Word result =
      runtime.call(*now.thread, nullptr,
                   {*now.closure, **static_cast<const Word* const*>(left), **static_cast<const Word* const*>(right)});
  sorting = &now;
  runtime.suspender.enter_native(*now.thread->mutator);
  return static_cast<std::int64_t>(result) < 0 ? -1 : result != 0 ? 1 : 0;
}

// As many references as there are: all of them may move while qsort runs, so that it sorts the addresses of places.
struct Rooted {
  explicit Rooted(std::vector<Word>& places) {
    for (Word& place : places) addresses.push_back(reinterpret_cast<Word>(&place));
    frame.header.reference_count = static_cast<std::uint32_t>(addresses.size());
    frame.header.references = reinterpret_cast<Word>(addresses.data());
  }
  std::vector<Word> addresses;
  MarkerFrame frame{FrameKind::kHelper};
};

}  // namespace

Word sort(Thread* thread, Word array, Word closure) {
  const Word* const elements = object(array).words;
  std::vector<Word> places(elements + 1, elements + 1 + elements[0]);
  std::vector<Word> none;
  const bool references = object(array).type().shape == TypeInfo::kReferences;
  thread->runtime->in_native(
      *thread,
      [&] {
        Rooted rooted(references ? places : none);
        const Pushed pushed(thread->mutator->frames, rooted.frame);
        std::vector<Word*> order;
        for (Word& place : places) order.push_back(&place);
        const Sorting now{thread, &closure};
        const Sorting* const outer = std::exchange(sorting, &now);
        std::qsort(order.data(), order.size(), sizeof order[0], compare);
        sorting = outer;
        std::vector<Word> sorted;
        thread->runtime->suspender.leave_native(*thread->mutator);
        for (const Word* place : order) sorted.push_back(*place);
        std::copy(sorted.begin(), sorted.end(), reinterpret_cast<Object*>(array)->words + 1);
        thread->runtime->suspender.enter_native(*thread->mutator);
      },
      &array, &closure);
  return 0;
}

Word parallel(Thread* thread, Word count, Word closure) {
  thread->runtime->in_native(
      *thread,
      [&] {
        std::vector<std::thread> threads;
        for (Word i = 0; i < count; ++i)
          threads.emplace_back([&, i] { thread->runtime->run_thread(reinterpret_cast<Word>(&closure), i); });
        for (std::thread& each : threads) each.join();
      },
      &closure);
  return 0;
}

}  // namespace lilt::helpers
