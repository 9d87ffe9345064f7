// Samples whose names may still come: runtimes write what they say of their code long after it has run. They wait here,
// walked already, until all has been said of their time.
//
// Bounds: kMaxBytes; beyond that those of the process with the most are given up first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/processes/process_table.h"
#include "windlass_event_layout.h"
#include "windlass_types.h"

namespace windlass::profiler {

// A sample with all that is known of it but the names of generated code.
struct WalkedSample {
  wl_event_head head{};
  std::uint8_t end = 0, certainty = 0;
  std::vector<std::uint64_t> kernel, user;
  std::vector<std::uint64_t> functions;  // Frame::function of the first user frames; of the others 0
  std::vector<wl_interpreted_frame> interpreted;
  std::shared_ptr<const MapSet> maps;  // of its time
  std::uint64_t hash = 0;              // of a wait: of its key
};

// One thread only.
class LateSamples {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{32} << 20;

  explicit LateSamples(std::size_t max_bytes = kMaxBytes) : max_bytes_(max_bytes) {}

  // Does what is published of a frame's code have to say something yet? `ended`: as PublishedCode::is_settled() wants.
  [[nodiscard]] static bool has_to_wait(const MapSet& maps, std::span<const std::uint64_t> user, std::uint64_t time,
                                        std::uint64_t ended);

  void push(WalkedSample sample);
  // Takes out those that need wait no longer, for each process in their order. `ended(tgid)`: when it ended, 0: it
  // lives. Where it has ended these are all.
  using Use = std::function<void(const WalkedSample& sample)>;
  void take_settled(const std::function<std::uint64_t(std::uint32_t tgid)>& ended, const Use& use);
  // Takes out what is too much.
  void take_excess(const Use& use);
  void for_each(const Use& use) const;

 private:
  struct Waiting {
    WalkedSample sample;
    std::size_t bytes = 0;  // that it takes; of neighbours that share their mappings the first one has those
  };
  void take_first(std::deque<Waiting>& waiting, const Use& use);

  std::size_t max_bytes_;
  std::unordered_map<std::uint32_t, std::deque<Waiting>> by_process_;
  std::size_t bytes_ = 0;
};

}  // namespace windlass::profiler
