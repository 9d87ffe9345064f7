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
  const auto [known, is_new] = text_numbers_.try_emplace(text, static_cast<std::uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(text);
  return known->second;
}

std::uint32_t TopNames::number_of(const profile::Profile& second, const Frame& frame) {
  const bool is_kernel = frame.module < second.modules.size() && second.modules[frame.module].is_kernel;
  std::string key = fmt::format("{}{}{}", static_cast<unsigned>(frame.kind), is_kernel ? 'k' : 'u', frame.name);
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

std::uint32_t TopSums::child_of(std::uint32_t parent, std::uint32_t frame) {
  const auto number = static_cast<std::uint32_t>(nodes_.size());
  const auto [known, is_new] = children_.try_emplace(std::uint64_t{parent} << 32 | frame, number);
  if (!is_new) return known->second;
  nodes_.push_back({.frame = frame, .id = mix_hash(nodes_[parent].id + 1, frame)});
  nodes_[parent].children.push_back(number);
  return number;
}

void TopSums::add(const TopSample& sample) {
  samples_ += sample.count;
  if (sample.is_whole) whole_ += sample.count;
  if (sample.weight == 0) return;
  std::uint32_t at = 0;
  nodes_[at].total += sample.weight;
  for (const std::uint32_t frame : sample.path) {
    at = child_of(at, frame);
    nodes_[at].total += sample.weight;
  }
  nodes_[at].self += sample.weight;
  if (!sample.path.empty()) functions_[sample.path.back()].self += sample.weight;
  scratch_ = sample.path;  // a recursive function counts once
  std::ranges::sort(scratch_);
  scratch_.erase(std::ranges::unique(scratch_).begin(), scratch_.end());
  for (const std::uint32_t frame : scratch_) functions_[frame].total += sample.weight;
  Process& process = processes_[sample.pid];
  process.weight += sample.weight;
  process.names[{sample.is_main_thread, sample.thread_name}] += sample.count;
  process.container = sample.container;
  for (const auto& label : sample.labels) labels_[label] += sample.weight;
}

}  // namespace windlass::exporter
