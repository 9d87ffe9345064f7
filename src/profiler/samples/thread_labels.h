// The labels that programs set for their own threads, as the kernel side sends them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/monotonic.h"
#include "profiler/processes/process_labels.h"
#include "profiler/samples/process_label_sets.h"
#include "windlass_event_layout.h"
#include "windlass_labels_layout.h"

namespace windlass::profiler {

// The labels in a record of OpenTelemetry's, by the names of keys; of a key that is there twice the last one. Sorted by
// key. `unknown`: there is a key without a name, which is left out.
struct DecodedLabels {
  std::vector<Label> labels;
  bool unknown = false;
};
[[nodiscard]] DecodedLabels decode_context(std::span<const std::byte> text, const std::vector<std::string>& keys);
// Those of a goroutine, sorted by key.
[[nodiscard]] std::vector<Label> decode_goroutine(std::span<const std::byte> text);

// One thread only.
class ThreadLabels {
 public:
  static constexpr std::uint64_t kReadInterval = 100'000'000;  // ns, behind a look that did not find a process's name
  static constexpr std::size_t kMostProcesses = 65536;         // whose names are kept

  // The names of a process's keys as they are now; nothing: it has none, or has gone. Empty function: none has any.
  using ReadKeys = std::function<std::optional<std::vector<std::string>>(std::uint32_t tgid)>;
  explicit ThreadLabels(ReadKeys read = {}) : read_(std::move(read)) {}

  // A WL_EVENT_LABELS; false if it is malformed.
  bool take(const wl_event_head& head, std::size_t size, std::uint64_t now = monotonic_ns());
  // The number of the set of a sample with these labels, in a process with the labels `of_process`; that, if the labels
  // are not known.
  [[nodiscard]] std::uint32_t of(std::uint32_t of_process, std::uint64_t labels, ProcessLabelSets& sets,
                                 std::uint64_t now = monotonic_ns());
  // How often of() did not know a sample's labels: they were lost, or there was no room for them.
  [[nodiscard]] std::uint64_t unknown() const { return unknown_; }
  // A process runs another program from now on.
  void on_exec(std::uint32_t tgid) { keys_.erase(tgid); }
  // The numbers of sets mean others from now on.
  void forget_sets() {
    for (auto& [labels, known] : known_) known.sets.clear();
  }
  void keep_only(const std::function<bool(std::uint32_t tgid)>& known);

 private:
  struct Keys {
    std::vector<std::string> names;
    std::uint64_t next_read = 0;
  };
  [[nodiscard]] DecodedLabels decode(std::uint32_t tgid, std::span<const std::byte> text, std::uint64_t now);

  ReadKeys read_;
  std::unordered_map<std::uint32_t, Keys> keys_;  // by tgid
  struct Known {
    std::uint32_t tgid = 0;
    std::vector<Label> labels;
    std::vector<std::byte> text{};                            // while a key in it has no name
    std::unordered_map<std::uint32_t, std::uint32_t> sets{};  // by the process's set
  };
  std::unordered_map<std::uint64_t, Known> known_;  // by wl_event_head::labels
  std::uint64_t unknown_ = 0;
};

}  // namespace windlass::profiler
