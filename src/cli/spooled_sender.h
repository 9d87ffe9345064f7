// A spool, and the thread that sends what waits there.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <thread>
#include <utility>

#include "profiler/spool/delivery.h"

namespace windlass::cli {

class SpooledSender {
 public:
  // `send` and `say`: as for Delivery. `say` is also called by append().
  SpooledSender(spool::Spool&& spool, spool::Delivery::Send send, const spool::Delivery::Say& say)
      : spool_(std::move(spool)),
        say_(say),
        delivery_(spool_, std::move(send), say),
        thread_([this] { delivery_.run(); }) {}
  ~SpooledSender() { end({}); }
  SpooledSender(const SpooledSender&) = delete;
  SpooledSender& operator=(const SpooledSender&) = delete;

  // By one thread at a time. A batch that the spool does not take is counted, and said once in a row.
  void append(const Expected<std::string>& packed, std::uint64_t samples) {
    const auto kept = packed ? spool_.append(*packed, samples) : Expected<std::uint64_t>(Failure(packed.error()));
    if (!kept && !std::exchange(told_, true)) say_(kept.error().text());
    if (kept) told_ = false;
  }
  void notify() { delivery_.notify(); }
  // Sends what waits for so long at most. What is left stays in the spool.
  void end(std::chrono::milliseconds rest) {
    if (!thread_.joinable()) return;
    delivery_.stop(rest);
    thread_.join();
  }
  // By any thread.
  [[nodiscard]] spool::DeliveryCounters counters() const { return delivery_.counters(); }

 private:
  spool::Spool spool_;
  spool::Delivery::Say say_;
  spool::Delivery delivery_;
  bool told_ = false;  // that the spool takes nothing
  std::thread thread_;
};

}  // namespace windlass::cli
