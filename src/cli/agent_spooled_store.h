// Intervals of an agent on their way to a store of many machines: kept on disk, appended on a thread of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "cli/agent_metrics.h"
#include "cli/spooled_sender.h"
#include "profiler/store/store.h"

namespace windlass::cli {

class AgentSpooledStore {
 public:
  // `place`: clickhouse://... A store that does not answer is said, and tried again with each batch. Errors: of a store
  // that answers, and can take nothing.
  [[nodiscard]] static Expected<std::unique_ptr<AgentSpooledStore>> open(const std::string& place,
                                                                         spool::Spool&& spool);

  // Puts the interval into the spool. `packed`: its store::pack_batch(). By one thread at a time.
  void add(const Expected<std::string>& packed, std::uint64_t samples);
  // Appends what waits for so long at most. What is left stays in the spool.
  void end(std::chrono::milliseconds rest) { sender_.end(rest); }
  // By any thread. Adds what this knows to the counters of an AgentWriter without a store.
  void add_to(StoreCounters& counters) const;

 private:
  AgentSpooledStore(spool::Spool&& spool, std::string place, std::unique_ptr<store::ProfileStore> store);
  [[nodiscard]] spool::Answer send(const spool::SpooledBatch& batch);

  std::string place_;
  // Of the sender's thread.
  std::unique_ptr<store::ProfileStore> store_;  // null: does not answer
  std::uint64_t tried_ = 0;                     // the sequence of the batch that was tried last
  // Dropped samples: when that batch was tried first, since another answer may have been lost; and those that the store
  // knows.
  std::uint64_t lost_ = 0, told_lost_ = 0;
  SpooledSender sender_;  // last: its thread uses the rest
};

}  // namespace windlass::cli
