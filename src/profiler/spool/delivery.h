// Sends the batches of a spool, in order, until the server has them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "profiler/spool/backoff.h"
#include "profiler/spool/spool.h"

namespace windlass::spool {

struct Answer {
  enum class Kind : std::uint8_t {
    kTaken,   // the server has the batch
    kLater,   // the server is away, busy or broken: the batch waits
    kRefused  // the server will never take the batch, which is dropped
  };
  Kind kind = Kind::kTaken;
  bool too_large = false;                                  // kRefused: the server may take a smaller batch
  std::optional<std::chrono::milliseconds> retry_after{};  // kLater: the server asks for so long
  std::string why{};          // a sentence without its end; with kTaken: why samples were dropped
  std::uint64_t dropped = 0;  // kTaken: samples of the batch that the server will never take
};

struct DeliveryCounters {
  SpoolCounters spool;
  std::uint64_t retries = 0;   // answers kLater
  std::uint64_t failures = 0;  // of these, in a row until now
};

class Delivery {
 public:
  using Send = std::function<Answer(const SpooledBatch&)>;
  using Say = std::function<void(const std::string&)>;

  // `spool` must outlive this. `send` is called on the thread of run(), and may take long. `say`: why an answer
  // is other than kTaken, or drops samples, once for a row of equal ones; on the thread of run().
  Delivery(Spool& spool, Send send, Say say, const BackoffLimits& limits = {})
      : spool_(spool), send_(std::move(send)), say_(std::move(say)), backoff_(limits) {}

  // Returns after stop(). Batches that still wait stay in the spool for the next run.
  void run();

  // ---- by any thread

  // A batch was appended.
  void notify();
  // Batches that wait are sent for so long at most, the first at once; then run() returns. The call of `send` at hand
  // is not interrupted.
  void stop(std::chrono::milliseconds rest);
  [[nodiscard]] DeliveryCounters counters() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Step : std::uint8_t { kAgain, kWait, kIdle };
  [[nodiscard]] Step send_oldest(std::chrono::milliseconds& wait);
  void tell(const std::string& why);
  [[nodiscard]] bool rest(Step step, std::chrono::milliseconds wait);

  Spool& spool_;
  Send send_;
  Say say_;
  Backoff backoff_;
  std::string told_;  // what say_ has said last

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool appended_ = false;                   // under the mutex, as the rest
  std::optional<Clock::time_point> until_;  // stop() was called
  std::uint64_t retries_ = 0, failures_ = 0;
};

}  // namespace windlass::spool
