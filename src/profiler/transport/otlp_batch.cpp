#include "profiler/transport/otlp_batch.h"

#include <algorithm>
#include <span>
#include <utility>

namespace windlass::transport {

namespace {

using Kind = spool::Answer::Kind;

// A server that refuses a request of so few bytes for its size has another reason, for example a quota.
constexpr std::size_t kSmallBytes = std::size_t{4} << 10;

}  // namespace

// kRefused with `too_large`: half of the range may do.
spool::Answer OtlpBatches::send_range(const profile::Profile& profile, const OtlpSource& source, SampleRange range) {
  const std::string request = otlp_request(profile, source, range);
  if (request.size() > most_bytes_ && range.count > 1) return {.kind = Kind::kRefused, .too_large = true};
  const auto packed = pack_otlp(request, how_);
  if (!packed) return {.kind = Kind::kRefused, .why = packed.error().text()};
  spool::Answer answer = sender_.send(*packed);
  answer.too_large = answer.too_large && packed->size() > kSmallBytes;
  return answer;
}

void OtlpBatches::drop(const profile::Profile& profile, const OtlpSource& source, std::size_t count,
                       std::string&& why) {
  dropped_ += profile::count_samples(std::span(profile.samples).subspan(next_, count), source.scales);
  next_ += count;
  why_ = std::move(why);
}

spool::Answer OtlpBatches::send(std::uint64_t sequence, const profile::Profile& profile, const OtlpSource& source) {
  const std::size_t all = profile.samples.size();
  if (sequence_ != sequence) {
    sequence_ = sequence;
    next_ = dropped_ = 0;
    step_ = all;
    why_.clear();
  }
  do {
    const std::size_t count = std::min(step_, all - next_);
    spool::Answer answer = send_range(profile, source, {next_, count});
    if (answer.kind == Kind::kLater) return answer;
    if (answer.kind == Kind::kTaken)
      next_ += count;
    else if (!answer.too_large)
      drop(profile, source, all - next_, std::move(answer.why));
    else if (count > 1)
      step_ = (count + 1) / 2;
    else
      drop(profile, source, count, std::move(answer.why));
  } while (next_ < all);
  return {.kind = Kind::kTaken, .why = std::exchange(why_, {}), .dropped = dropped_};
}

}  // namespace windlass::transport
