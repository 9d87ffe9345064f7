// What `windlass top` adds up: the functions, processes, call tree and labels of the seconds of a recording.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/export/call_tree.h"
#include "profiler/export/frames.h"
#include "profiler/profile/profile.h"

namespace windlass::exporter {

enum class TopView : std::uint8_t { kFunctions, kProcesses, kTree, kLabels };
inline constexpr const char* kTopViews[] = {"functions", "processes", "tree", "labels"};

struct TopFrame {
  std::string name, module;
  FrameKind kind = FrameKind::kFunction;
  bool is_kernel = false;
};

// A sample of one second. Frames and texts have the same numbers in all seconds.
struct TopSample {
  std::vector<std::uint32_t> path;  // frames, root first
  std::uint32_t event = 0;
  std::uint64_t weight = 0;  // of what is shown of the event
  std::uint64_t count = 0;   // of samples
  std::uint32_t pid = 0;
  std::uint32_t thread_name = 0;  // a text
  bool is_main_thread = false, is_whole = false;
  std::uint32_t container = profile::kNone;                     // a text
  std::vector<std::pair<std::uint32_t, std::uint32_t>> labels;  // texts
};

// Frames and texts of a recording, each once, in the order in which they came. Beyond kMost of either, all others have
// the number of kOthers.
class TopNames {
 public:
  static constexpr std::uint32_t kMost = 1 << 20, kOthers = 0;

  TopNames() : frames_{{"[others]", ""}}, texts_{"[others]"} {}

  // The samples of a profile whose addresses are named.
  [[nodiscard]] std::vector<TopSample> samples_of(const profile::Profile& second);
  [[nodiscard]] const TopFrame& frame(std::uint32_t number) const { return frames_[number]; }
  [[nodiscard]] const std::string& text(std::uint32_t number) const { return texts_[number]; }

 private:
  std::uint32_t number_of(const profile::Profile& second, const Frame& frame);
  std::uint32_t number_of(const std::string& text);

  std::deque<TopFrame> frames_;
  std::unordered_map<std::string, std::uint32_t> frame_numbers_;
  std::deque<std::string> texts_;
  std::unordered_map<std::string, std::uint32_t> text_numbers_;
};

// Sums of the samples of one event. Their memory is bounded: beyond so many nodes of the tree, callers have the weight
// of further callees; further processes and labels are one each.
class TopSums {
 public:
  static constexpr std::size_t kMostNodes = 1 << 20, kMostProcesses = 1 << 15, kMostLabels = 1 << 15;
  static constexpr std::size_t kMostNames = 1 << 10;  // of a process's threads
  static constexpr std::uint32_t kOtherProcesses = profile::kNone;

  struct Node {
    std::uint32_t frame = profile::kNone;
    std::uint64_t id = 0;  // the same in all sums
    std::uint64_t self = 0, total = 0;
    std::vector<std::uint32_t> children{};
  };
  struct Process {
    std::uint64_t weight = 0;
    std::map<std::pair<bool, std::uint32_t>, std::uint64_t> names{};  // (of the main thread, text)
    std::uint32_t container = profile::kNone;
  };
  using Label = std::pair<std::uint32_t, std::uint32_t>;

  // `only`: what one view shows, in a fraction of the time.
  void add(const TopSample& sample, std::optional<TopView> only = {});
  [[nodiscard]] std::uint64_t weight() const { return nodes_[0].total; }
  [[nodiscard]] std::uint64_t samples() const { return samples_; }
  [[nodiscard]] std::uint64_t whole() const { return whole_; }
  [[nodiscard]] const std::unordered_map<std::uint32_t, FunctionCount>& functions() const { return functions_; }
  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }  // the first is the root of all
  [[nodiscard]] const std::map<std::uint32_t, Process>& processes() const { return processes_; }
  [[nodiscard]] const std::map<Label, std::uint64_t>& labels() const { return labels_; }

 private:
  std::uint32_t child_of(std::uint32_t parent, std::uint32_t frame);
  void add_to_tree(const TopSample& sample);
  void add_to_functions(const TopSample& sample);
  void add_to_process(const TopSample& sample);
  void add_to_label(Label label, std::uint64_t weight);

  std::uint64_t samples_ = 0, whole_ = 0;
  std::unordered_map<std::uint32_t, FunctionCount> functions_;  // by frame
  std::vector<Node> nodes_{Node{}};
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // by parent and frame
  std::map<std::uint32_t, Process> processes_;
  std::map<Label, std::uint64_t> labels_;
  std::vector<std::uint32_t> scratch_;
};

}  // namespace windlass::exporter
