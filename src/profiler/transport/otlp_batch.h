// A batch of profiles on its way to an OTLP server, in as many requests as the server's limit of size takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "profiler/spool/delivery.h"
#include "profiler/transport/otlp_pack.h"
#include "profiler/transport/otlp_sender.h"

namespace windlass::transport {

class OtlpBatches {
 public:
  // The sender must outlive this. `most_bytes`: of a request, before compression.
  OtlpBatches(OtlpSender& sender, OtlpCompression how, std::size_t most_bytes = kMostOtlpBytes)
      : sender_(sender), how_(how), most_bytes_(most_bytes) {}

  // Sends all samples, and waits for the answers. A request beyond `most_bytes`, or that the server finds too large, is
  // sent as two halves. A sample that the server finds too large by itself is dropped, and so is what the server
  // refuses: Answer::dropped. If the answer is kLater, the next call with this `sequence` goes on behind the samples
  // that the server has. `sequence`: of the batch in its spool. By one thread at a time.
  [[nodiscard]] spool::Answer send(std::uint64_t sequence, const profile::Profile& profile, const OtlpSource& source);

 private:
  [[nodiscard]] spool::Answer send_range(const profile::Profile& profile, const OtlpSource& source, SampleRange range);
  void drop(const profile::Profile& profile, const OtlpSource& source, std::size_t count, std::string&& why);

  OtlpSender& sender_;
  OtlpCompression how_;
  std::size_t most_bytes_;
  // Of the batch that was sent last.
  std::optional<std::uint64_t> sequence_;
  std::size_t next_ = 0, step_ = 0;  // samples: the first that is not done, and how many a request has
  std::uint64_t dropped_ = 0;
  std::string why_;  // some were dropped
};

}  // namespace windlass::transport
