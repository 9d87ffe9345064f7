#include "profiler/export/top_sums.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "profiler/export/stacks.h"

namespace windlass::exporter {
namespace {

// In this order: the name that people gave it, else the id.
constexpr std::string_view kContainerLabels[] = {"container.name", "container.id"};

}  // namespace

std::uint32_t TopNames::number_of(const std::string& text) {
  if (texts_.size() >= kMost && !text_numbers_.contains(text)) return kOthers;
  const auto [known, is_new] = text_numbers_.try_emplace(text, static_cast<std::uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(text);
  return known->second;
}

std::uint32_t TopNames::number_of(const profile::Profile& second, const Frame& frame) {
  const bool is_kernel = frame.module < second.modules.size() && second.modules[frame.module].is_kernel;
  std::string key = fmt::format("{}{}{}", static_cast<unsigned>(frame.kind), is_kernel ? 'k' : 'u', frame.name);
  if (frames_.size() >= kMost && !frame_numbers_.contains(key)) return kOthers;
  const auto [known, is_new] = frame_numbers_.try_emplace(std::move(key), static_cast<std::uint32_t>(frames_.size()));
  if (is_new) frames_.push_back({frame.name, module_text(second, frame), frame.kind, is_kernel});
  return known->second;
}

std::vector<TopSample> TopNames::samples_of(const profile::Profile& second) {
  Frames frames(second);
  std::vector<std::uint32_t> numbers;  // of the frames of this profile
  std::vector<TopSample> samples;
  samples.reserve(second.samples.size());
  for (const profile::Sample& sample : second.samples) {
    TopSample& added = samples.emplace_back();
    frames.path_of(sample, added.path);
    numbers.resize(frames.size(), profile::kNone);
    for (std::uint32_t& frame : added.path) {
      if (numbers[frame] == profile::kNone) numbers[frame] = number_of(second, frames[frame]);
      frame = numbers[frame];
    }
    added.event = sample.event;
    added.weight = weight_of(second, sample, shown_of(second, sample.event));
    added.count = sample.count;
    added.pid = sample.pid;
    added.thread_name = number_of(sample.comm < second.strings.size() ? second.strings[sample.comm] : "[unknown]");
    added.is_main_thread = sample.pid == sample.tid;
    added.is_whole = profile::is_whole(sample.end);
    for (const profile::Label& label : second.label_sets[sample.labels])
      added.labels.emplace_back(number_of(second.strings[label.key]), number_of(second.strings[label.value]));
    for (const std::string_view key : kContainerLabels)
      for (const auto& [label, value] : added.labels)
        if (added.container == profile::kNone && text(label) == key) added.container = value;
  }
  return samples;
}

// profile::kNone: there is no room for it.
std::uint32_t TopSums::child_of(std::uint32_t parent, std::uint32_t frame) {
  const std::uint64_t key = std::uint64_t{parent} << 32 | frame;
  if (const auto known = children_.find(key); known != children_.end()) return known->second;
  if (nodes_.size() >= kMostNodes) return profile::kNone;
  const auto number = static_cast<std::uint32_t>(nodes_.size());
  children_.emplace(key, number);
  nodes_.push_back({.frame = frame, .id = mix_hash(nodes_[parent].id + 1, frame)});
  nodes_[parent].children.push_back(number);
  return number;
}

void TopSums::add(const TopSample& sample, std::optional<TopView> only) {
  samples_ += sample.count;
  if (sample.is_whole) whole_ += sample.count;
  if (sample.weight == 0) return;
  nodes_[0].total += sample.weight;
  const auto wanted = [&](TopView view) { return only.value_or(view) == view; };
  if (wanted(TopView::kTree)) add_to_tree(sample);
  if (wanted(TopView::kFunctions)) add_to_functions(sample);
  if (wanted(TopView::kProcesses)) add_to_process(sample);
  if (wanted(TopView::kLabels))
    for (const Label& label : sample.labels) add_to_label(label, sample.weight);
}

void TopSums::add_to_tree(const TopSample& sample) {
  std::uint32_t at = 0;
  for (const std::uint32_t frame : sample.path) {
    const std::uint32_t child = child_of(at, frame);
    if (child == profile::kNone) break;
    at = child;
    nodes_[at].total += sample.weight;
  }
  nodes_[at].self += sample.weight;
}

void TopSums::add_to_functions(const TopSample& sample) {
  if (!sample.path.empty()) functions_[sample.path.back()].self += sample.weight;
  scratch_ = sample.path;  // a recursive function counts once
  std::ranges::sort(scratch_);
  scratch_.erase(std::ranges::unique(scratch_).begin(), scratch_.end());
  for (const std::uint32_t frame : scratch_) functions_[frame].total += sample.weight;
}

void TopSums::add_to_process(const TopSample& sample) {
  const bool has_room = processes_.size() < kMostProcesses || processes_.contains(sample.pid);
  Process& process = processes_[has_room ? sample.pid : kOtherProcesses];
  process.weight += sample.weight;
  const auto name =
      has_room ? std::pair(sample.is_main_thread, sample.thread_name) : std::pair(true, TopNames::kOthers);
  if (process.names.size() < kMostNames || process.names.contains(name)) process.names[name] += sample.count;
  process.container = has_room ? sample.container : profile::kNone;
}

// Further values of a key are one, and so are further keys.
void TopSums::add_to_label(Label label, std::uint64_t weight) {
  if (labels_.size() >= kMostLabels && !labels_.contains(label)) label.second = TopNames::kOthers;
  if (labels_.size() >= 2 * kMostLabels && !labels_.contains(label)) label.first = TopNames::kOthers;
  labels_[label] += weight;
}

}  // namespace windlass::exporter
