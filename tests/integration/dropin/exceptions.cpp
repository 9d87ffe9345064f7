// Exceptions of every kind; prints what happened, line by line, so that a run under a preloaded unwinder can be held
// against one without.
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

int destroyed = 0;
struct Counted {
  int id;
  explicit Counted(int number) : id(number) {}
  ~Counted() { ++destroyed; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
};

[[gnu::noinline]] int deep(int depth, int kind) {
  Counted here(depth);
  if (depth > 0) return deep(depth - 1, kind) + here.id;
  switch (kind) {
    case 0: throw 42;
    case 1: throw std::runtime_error("deep");
    case 2: throw std::string("text");
    default: return 0;
  }
}

[[gnu::noinline]] int through(int depth, int kind) {
  try {
    return deep(depth, kind);
  } catch (const std::logic_error&) {  // never the one that is thrown
    return -1;
  }
}

void throw_and_catch() {
  for (int kind = 0; kind < 4; ++kind) {
    try {
      std::printf("returned %d\n", through(20, kind));
    } catch (int value) {
      std::printf("int %d", value);
    } catch (const std::exception& error) {
      std::printf("exception %s", error.what());
    } catch (...) {
      std::printf("something");
    }
    std::printf(", %d destroyed\n", destroyed);
  }
}

void rethrow_and_nest() {
  try {
    try {
      deep(3, 1);
    } catch (const std::exception& outer) {
      try {
        deep(2, 0);
      } catch (int inner) {
        std::printf("nested %d in %s\n", inner, outer.what());
      }
      throw;
    }
  } catch (const std::runtime_error& error) {
    std::printf("rethrown %s\n", error.what());
  }
  try {
    try {
      deep(1, 2);
    } catch (...) {
      std::throw_with_nested(std::logic_error("wrapped"));
    }
  } catch (const std::logic_error& error) {
    std::printf("%s\n", error.what());
    try {
      std::rethrow_if_nested(error);
    } catch (const std::string& text) {
      std::printf("inside: %s\n", text.c_str());
    }
  }
}

void across_threads() {
  auto future = std::async(std::launch::async, [] { return deep(5, 1); });
  try {
    future.get();
  } catch (const std::exception& error) {
    std::printf("from a thread: %s\n", error.what());
  }
  std::exception_ptr kept;
  std::thread([&] {
    try {
      deep(4, 0);
    } catch (...) {
      kept = std::current_exception();
    }
  }).join();
  try {
    std::rethrow_exception(kept);
  } catch (int value) {
    std::printf("kept %d\n", value);
  }
}

struct InDestructor {
  ~InDestructor() {
    try {
      deep(2, 0);
    } catch (int value) {
      std::printf("in a destructor, unwinding %d: %d\n", std::uncaught_exceptions(), value);
    }
  }
};

void while_unwinding() {
  try {
    InDestructor object;
    deep(2, 1);
  } catch (const std::exception& error) {
    std::printf("after: %s\n", error.what());
  }
}

#if !defined(WITHOUT_FORCED_UNWINDING)
// Forced unwinding: destructors run, catch (...) sees it and must rethrow it.
void* leave(void* how) {
  Counted counted(1);
  try {
    if (how != nullptr) {
      pthread_exit(reinterpret_cast<void*>(7));
    }
    for (;;) pause();
  } catch (...) {
    std::printf("forced unwinding passes by\n");
    throw;
  }
}

void forced() {
  for (void* how : {static_cast<void*>(nullptr), static_cast<void*>(&destroyed)}) {
    const int before = destroyed;
    pthread_t thread;
    void* result = nullptr;
    pthread_create(&thread, nullptr, leave, how);
    if (how == nullptr) {
      usleep(20000);
      pthread_cancel(thread);
    }
    pthread_join(thread, &result);
    std::printf("%s, %d destroyed\n", result == PTHREAD_CANCELED ? "cancelled" : "exited", destroyed - before);
  }
}

#endif

[[noreturn]] void last_words() {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    std::printf("terminated by %s\n", error.what());
  }
  std::fflush(stdout);
  _exit(3);
}

void must_not() noexcept { deep(2, 1); }

}  // namespace

int main() {
  throw_and_catch();
  rethrow_and_nest();
  across_threads();
  while_unwinding();
#if !defined(WITHOUT_FORCED_UNWINDING)
  forced();
#endif
#if defined(WITHOUT_FORCED_UNWINDING)
  constexpr int kMany = 300;  // libunwind makes system calls for every frame
#else
  constexpr int kMany = 20000;
#endif
  for (int i = 0; i < kMany; ++i) {
    try {
      deep(i % 10, i % 3);
    } catch (...) {
      ++destroyed;
    }
  }
  std::printf("%d in the end\n", destroyed);
  std::set_terminate(last_words);
  must_not();
}
