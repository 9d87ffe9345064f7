// How long to wait before a server is tried again.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace windlass::spool {

struct BackoffLimits {
  std::chrono::milliseconds first{1'000};              // after the first failure
  std::chrono::milliseconds most{5 * 60'000};          // of the own waits
  std::chrono::milliseconds most_asked{60 * 60'000L};  // of a wait that the server asks for
};

// Each failure doubles the wait, up to a bound. A wait is random between half of that and all of it, so that the agents
// of many machines do not come back at the same moment. Not thread-safe.
class Backoff {
 public:
  explicit Backoff(const BackoffLimits& limits = {}, std::optional<std::uint64_t> seed = {});

  // The wait after a failure. `asked`: the server's Retry-After. The wait is no shorter, unless that is beyond
  // BackoffLimits::most_asked.
  [[nodiscard]] std::chrono::milliseconds failed(std::optional<std::chrono::milliseconds> asked = {});
  void succeeded() { failures_ = 0; }
  [[nodiscard]] unsigned failures() const { return failures_; }  // in a row

 private:
  BackoffLimits limits_;
  std::uint64_t random_;
  unsigned failures_ = 0;
};

// The value of the HTTP header Retry-After (RFC 9110, 10.2.3): seconds, or a date. A date of the past is 0. Nothing:
// neither.
[[nodiscard]] std::optional<std::chrono::milliseconds> parse_retry_after(std::string_view value,
                                                                         std::chrono::system_clock::time_point now);

}  // namespace windlass::spool
