// A stack to run out of: its lowest pages can be taken from it and given back.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>

namespace windlass::test {

class SmallStack {
 public:
  SmallStack()
      : memory_(static_cast<std::byte*>(
            mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  ~SmallStack() { munmap(memory_, kSize); }
  SmallStack(const SmallStack&) = delete;
  SmallStack& operator=(const SmallStack&) = delete;

  [[nodiscard]] bool give_room() const { return mprotect(memory_, kReserve, PROT_READ | PROT_WRITE) == 0; }
  void take_room() const { ASSERT_EQ(mprotect(memory_, kReserve, PROT_NONE), 0); }
  // Is less than a page left above the reserve?
  [[nodiscard]] bool is_used_up_at(std::uint64_t sp) const {
    return sp - (reinterpret_cast<std::uint64_t>(memory_) + kReserve) < 4096;
  }

  // Runs `body` in a thread on the stack, without the reserve. SIGSEGV goes to `redirect`, and ends the process where
  // that is false.
  using Redirect = bool (*)(int signal, siginfo_t* info, void* context);
  void run(Redirect redirect, const std::function<void()>& body) const {
    take_room();
    static Redirect redirects;
    redirects = redirect;
    struct sigaction action {
    }, before{};
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    action.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
      if (!redirects(signal, info, context)) std::abort();
    };
    ASSERT_EQ(sigaction(SIGSEGV, &action, &before), 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    ASSERT_EQ(pthread_attr_setstack(&attributes, memory_, kSize), 0);
    pthread_t thread;
    const auto start = [](void* of) -> void* {
      static std::byte signal_stack[64 << 10];
      stack_t own{}, of_thread{};
      own.ss_sp = signal_stack;
      own.ss_size = sizeof signal_stack;
      EXPECT_EQ(sigaltstack(&own, &of_thread), 0);
      (*static_cast<const std::function<void()>*>(of))();
      sigaltstack(&of_thread, nullptr);  // a sanitizer's runtime frees its own when the thread ends
      return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &attributes, start, const_cast<std::function<void()>*>(&body)), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    sigaction(SIGSEGV, &before, nullptr);
  }

 private:
  static constexpr std::size_t kSize = 1 << 20, kReserve = 192 << 10;
  std::byte* memory_;
};

}  // namespace windlass::test
