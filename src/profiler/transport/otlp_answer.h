// What an OTLP server answers, by HTTP or gRPC. All bytes are the server's, and may be damaged.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "profiler/spool/delivery.h"
#include "profiler/transport/http_client.h"

namespace windlass::transport {

struct OtlpResult {
  spool::Answer answer{};
  // Of an answer that says that the batch was taken.
  std::uint64_t rejected = 0;  // Profiles that were refused all the same
  std::string remark{};        // why, or a warning
};

// OTLP 1.11: 429, 502, 503 and 504 are tried again. 413: the request is too large. An answer of 200 that is
// none of OTLP counts as not taken.
[[nodiscard]] OtlpResult result_of_http(const HttpAnswer& answer, std::chrono::system_clock::time_point now);
// CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE and DATA_LOSS are tried again, and
// RESOURCE_EXHAUSTED that comes with a RetryInfo. Without a RetryInfo the request may be too large for the server.
[[nodiscard]] OtlpResult result_of_grpc(const HttpAnswer& answer, std::chrono::system_clock::time_point now);

// "a%20b" of the header grpc-message, or of a list of headers: "a b".
[[nodiscard]] std::string percent_decoded(std::string_view text);

// A message of gRPC: not compressed or compressed, its length, its bytes.
[[nodiscard]] std::string grpc_frame(std::string_view message, bool is_compressed);

}  // namespace windlass::transport
