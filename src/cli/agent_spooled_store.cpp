#include "cli/agent_spooled_store.h"

#include <utility>

#include "cli/errors.h"
#include "cli/say.h"
#include "profiler/store/open_store.h"
#include "profiler/store/packed_batch.h"

namespace windlass::cli {
namespace {

Expected<std::unique_ptr<store::ProfileStore>> opened(const std::string& place) {
  return store::open_store(place, {.write = true, .keep = {}});
}

// A later try may do.
bool is_away(const Error& error) { return error.code == ErrorCode::kUnreadable; }

}  // namespace

Expected<std::unique_ptr<AgentSpooledStore>> AgentSpooledStore::open(const std::string& place, spool::Spool&& spool) {
  auto store = opened(place);
  if (!store && !is_away(store.error())) return Failure(store.error());
  if (!store) say_error("agent: " + store::shown_place(place), store.error());
  return std::unique_ptr<AgentSpooledStore>(
      new AgentSpooledStore(std::move(spool), place, store ? *std::move(store) : nullptr));
}

AgentSpooledStore::AgentSpooledStore(spool::Spool&& spool, std::string place,
                                     std::unique_ptr<store::ProfileStore> store)
    : place_(std::move(place)),
      store_(std::move(store)),
      sender_(
          std::move(spool), [this](const spool::SpooledBatch& batch) { return send(batch); },
          [](const std::string& why) { say("windlass: agent: {}\n", why); }) {}

void AgentSpooledStore::add(const Expected<std::string>& packed, std::uint64_t samples) {
  sender_.append(packed, samples);
  sender_.notify();
}

spool::Answer AgentSpooledStore::send(const spool::SpooledBatch& batch) {
  using Kind = spool::Answer::Kind;
  const auto later = [&](const Error& error) {
    return spool::Answer{.kind = Kind::kLater, .why = store::shown_place(place_) + ": " + text_of(error)};
  };
  auto unpacked = store::unpack_batch(batch.bytes);
  if (!unpacked) return {.kind = Kind::kRefused, .why = unpacked.error().text()};
  if (store_ == nullptr) {
    auto again = opened(place_);
    if (!again) return later(again.error());
    store_ = *std::move(again);
  }
  if (std::exchange(tried_, batch.sequence) != batch.sequence) lost_ = sender_.counters().spool.dropped_samples;
  unpacked->profile.lost += lost_ - told_lost_;
  const auto appended = store_->append({unpacked->id, unpacked->begin_ns, unpacked->end_ns, unpacked->profile});
  if (appended) told_lost_ = lost_;
  if (appended) return {};
  // A server that comes back may be another one.
  store_.reset();
  spool::Answer answer = later(appended.error());
  if (store::is_final(appended.error())) answer.kind = Kind::kRefused;
  return answer;
}

void AgentSpooledStore::add_to(StoreCounters& counters) const {
  const spool::DeliveryCounters now = sender_.counters();
  counters.samples += now.spool.acknowledged_samples;
  counters.intervals += now.spool.acknowledged_batches;
  counters.earlier_samples += now.spool.earlier_samples;
  counters.earlier_intervals += now.spool.earlier_batches;
  counters.dropped += now.spool.dropped_samples;
  counters.torn_intervals += now.spool.torn_batches;
  counters.refusals += now.retries;
  counters.waiting_intervals = now.spool.batches;
  counters.most_waiting_intervals = 0;
  counters.spool_bytes = now.spool.bytes;
  counters.most_spool_bytes = now.spool.most_bytes;
}

}  // namespace windlass::cli
