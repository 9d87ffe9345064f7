#include "cli/agent_otlp.h"

#include <algorithm>
#include <utility>

#include "cli/otlp_headers.h"
#include "cli/say.h"
#include "profiler/store/content_hash.h"
#include "profiler/store/packed_batch.h"

namespace windlass::cli {
namespace {

void say_otlp(const std::string& why) { say("windlass: agent: OTLP: {}\n", why); }

store::HashBytes id_of(const store::BatchId& id) {
  return store::ContentHash().add("OTLP profiles").add(id.host).add(id.agent_start_ns).add(id.sequence).bytes();
}

}  // namespace

Expected<std::unique_ptr<AgentOtlp>> AgentOtlp::open(const OtlpArguments& arguments, const std::string& host,
                                                     spool::Spool&& spool) {
  auto place = transport::otlp_place(arguments.url);
  if (!place) return Failure(place.error());
  const auto compression = transport::otlp_compression(arguments.compression);
  if (!compression) return fail(ErrorCode::kUnsupported, "no such compression. Way out: gzip, zstd or none", 0);
  if (const auto tried = transport::pack_otlp({}, *compression); !tried) return Failure(tried.error());
  transport::OtlpTarget target{
      .place = *std::move(place),
      .token_file = arguments.token_file,
      .tls = {.ca = arguments.ca, .certificate = arguments.certificate, .key = arguments.key},
      .timeout = std::chrono::milliseconds(static_cast<std::int64_t>(arguments.timeout * 1e3))};
  auto headers = otlp_headers(arguments);
  if (!headers) return Failure(headers.error());
  target.headers = *std::move(headers);
  return std::unique_ptr<AgentOtlp>(new AgentOtlp(std::move(spool), std::move(target), *compression, host));
}

AgentOtlp::AgentOtlp(spool::Spool&& spool, transport::OtlpTarget target, transport::OtlpCompression compression,
                     const std::string& host)
    : resource_(transport::otlp_machine(host)),
      sender_(std::move(target), say_otlp),
      batches_(sender_, compression),
      spooled_(
          std::move(spool), [this](const spool::SpooledBatch& batch) { return send(batch); }, say_otlp) {}

void AgentOtlp::add(const Expected<std::string>& packed, std::uint64_t samples) {
  spooled_.append(packed, samples);
  spooled_.notify();
}

spool::Answer AgentOtlp::send(const spool::SpooledBatch& batch) {
  const auto unpacked = store::unpack_batch(batch.bytes);
  if (!unpacked) return {.kind = spool::Answer::Kind::kRefused, .why = unpacked.error().text()};
  return batches_.send(batch.sequence, unpacked->profile,
                       {.resource = resource_, .id = id_of(unpacked->id), .scales = unpacked->scales});
}

OtlpNumbers AgentOtlp::numbers() const {
  const spool::DeliveryCounters sent = spooled_.counters();
  const transport::OtlpCounters answers = sender_.counters();
  return {.batches = sent.spool.acknowledged_batches,
          .samples = sent.spool.acknowledged_samples,
          .earlier_batches = sent.spool.earlier_batches,
          .earlier_samples = sent.spool.earlier_samples,
          .dropped_batches = sent.spool.dropped_batches,
          .dropped_samples = sent.spool.dropped_samples,
          .torn_batches = sent.spool.torn_batches,
          .retries = sent.retries,
          .unsure = answers.unsure,
          .rejected_profiles = answers.rejected_profiles,
          .warnings = answers.warnings,
          .failures = sent.failures,
          .waiting_batches = sent.spool.batches,
          .spool_bytes = sent.spool.bytes,
          .most_spool_bytes = sent.spool.most_bytes};
}

}  // namespace windlass::cli
