// Intervals of an agent on their way to an OpenTelemetry collector: kept on disk, encoded, sent on a thread of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/agent_metrics.h"
#include "cli/spooled_sender.h"
#include "profiler/transport/otlp_batch.h"
#include "profiler/transport/otlp_sender.h"

namespace windlass::cli {

struct OtlpArguments {
  std::string url, spool, token_file, ca, certificate, key, compression = "gzip";
  std::string header_file;           // lines KEY=VALUE
  std::vector<std::string> headers;  // KEY=VALUE
  std::vector<std::pair<std::string, std::string>> environment_headers;
  double timeout = 10;                                  // seconds, of a request
  std::uint64_t spool_size = std::uint64_t{256} << 20;  // bytes
};

class AgentOtlp {
 public:
  // Errors: of the URL, of the file of headers, of a compression that this build has not.
  [[nodiscard]] static Expected<std::unique_ptr<AgentOtlp>> open(const OtlpArguments& arguments,
                                                                 const std::string& host, spool::Spool&& spool);

  // Puts the interval into the spool. `packed`: its store::pack_batch(); `samples`: OwnedBatch::samples. By one thread
  // at a time. A batch that finds no room is said and counted.
  void add(const Expected<std::string>& packed, std::uint64_t samples);
  // Sends what waits for so long at most. What is left stays in the spool.
  void end(std::chrono::milliseconds rest) { spooled_.end(rest); }
  // By any thread.
  [[nodiscard]] OtlpNumbers numbers() const;

 private:
  AgentOtlp(spool::Spool&& spool, transport::OtlpTarget target, transport::OtlpCompression compression,
            const std::string& host);

  [[nodiscard]] spool::Answer send(const spool::SpooledBatch& batch);

  std::vector<std::pair<std::string, std::string>> resource_;
  transport::OtlpSender sender_;
  transport::OtlpBatches batches_;
  SpooledSender spooled_;  // last: its thread uses the rest
};

}  // namespace windlass::cli
