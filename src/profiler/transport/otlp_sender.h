// Sends batches of profiles to an OpenTelemetry collector, or to another receiver of OTLP (opentelemetry-proto 1.11).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "profiler/spool/delivery.h"
#include "profiler/transport/http_client.h"

namespace windlass::transport {

// Where requests go, of what a user gives:
//   http://HOST:4318   POST /v1development/profiles. A URL with a path stays as it is.
//   grpc://HOST:4317   opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export
//   https://, grpcs:// the same by TLS
struct OtlpPlace {
  std::string url;
  bool is_grpc = false;
};
// Error: kMalformed: none of these.
[[nodiscard]] Expected<OtlpPlace> otlp_place(std::string_view given);

struct OtlpTarget {
  OtlpPlace place{};
  HttpFields headers{};      // with each request
  std::string token_file{};  // "authorization: Bearer ..." of its first line, which is read for each request; or empty
  HttpTls tls{};
  std::chrono::milliseconds timeout = std::chrono::seconds(10);
};

// Since the start.
struct OtlpCounters {
  std::uint64_t rejected_profiles = 0;  // of batches that the server has taken else
  std::uint64_t warnings = 0;           // of the server, with batches that it has taken
  std::uint64_t unsure = 0;             // requests without an answer: the server may have the batch, which comes again
};

class OtlpSender {
 public:
  // `say`: what the server remarks on a batch that it takes, once for a row of equal remarks; on the thread of send().
  OtlpSender(OtlpTarget target, std::function<void(const std::string&)> say)
      : target_(std::move(target)), say_(std::move(say)) {}

  // One packed request (pack_otlp()). Waits for the answer. By one thread at a time.
  [[nodiscard]] spool::Answer send(std::string_view packed);
  // By any thread.
  [[nodiscard]] OtlpCounters counters() const;

 private:
  [[nodiscard]] Expected<HttpAnswer> ask(std::string_view packed);

  OtlpTarget target_;
  std::function<void(const std::string&)> say_;
  HttpClient client_;
  std::string told_;
  std::atomic<std::uint64_t> rejected_ = 0, warnings_ = 0, unsure_ = 0;
};

}  // namespace windlass::transport
