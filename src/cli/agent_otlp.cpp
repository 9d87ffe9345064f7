#include "cli/agent_otlp.h"

#include <algorithm>
#include <utility>

#include "cli/otlp_headers.h"
#include "cli/say.h"
#include "profiler/store/content_hash.h"

namespace windlass::cli {
namespace {

void say_otlp(const std::string& why) { say("windlass: agent: OTLP: {}\n", why); }

store::HashBytes id_of(const store::BatchId& id) {
  return store::ContentHash().add("OTLP profiles").add(id.host).add(id.agent_start_ns).add(id.sequence).bytes();
}

}  // namespace

Expected<std::unique_ptr<AgentOtlp>> AgentOtlp::open(const OtlpArguments& arguments, const std::string& host,
                                                     std::uint64_t first) {
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
  auto spool = spool::Spool::open(arguments.spool, arguments.spool_size);
  if (!spool) return Failure(spool.error());
  if (first != 0) spool->set_first(first);
  return std::unique_ptr<AgentOtlp>(new AgentOtlp(*std::move(spool), std::move(target), *compression, host));
}

AgentOtlp::AgentOtlp(spool::Spool&& spool, transport::OtlpTarget target, transport::OtlpCompression compression,
                     const std::string& host)
    : spool_(std::move(spool)),
      compression_(compression),
      resource_(transport::otlp_machine(host)),
      sender_(std::move(target), say_otlp),
      delivery_(
          spool_, [this](const spool::SpooledBatch& batch) { return sender_.send(batch.bytes); }, say_otlp),
      thread_([this] { delivery_.run(); }) {}

AgentOtlp::~AgentOtlp() { end({}); }

void AgentOtlp::add(const store::OwnedBatch& batch) {
  const transport::OtlpSource source{.resource = resource_, .id = id_of(batch.id)};
  for (const transport::OtlpPart& part : transport::otlp_parts(batch.profile, source)) {
    const auto packed = transport::pack_otlp(part.request, compression_);
    const auto kept = packed ? spool_.append(*packed, part.samples) : Expected<std::uint64_t>(Failure(packed.error()));
    if (!kept && !std::exchange(told_, true)) say_otlp(kept.error().text());
    if (kept) told_ = false;
  }
  delivery_.notify();
}

void AgentOtlp::end(std::chrono::milliseconds rest) {
  if (!thread_.joinable()) return;
  delivery_.stop(rest);
  thread_.join();
}

OtlpNumbers AgentOtlp::numbers() const {
  const spool::DeliveryCounters sent = delivery_.counters();
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
