#include "profiler/export/page_table.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <unordered_map>

#include "base/leb128.h"
#include "profiler/export/tree_maker.h"

namespace windlass::exporter {

namespace {

using profile::kNone;
using profile::Sample;

// Samples that differ in their counts alone.
struct PageEntry {
  std::uint32_t node, process, event, labels, end, certainty, module, line;
  std::uint64_t count, value;
  std::uint32_t sample;
  [[nodiscard]] auto key() const { return std::tie(node, process, event, labels, end, certainty, module, line); }
};

// The tree of the samples' stacks in preorder, children in the order of their frames.
class PageStacks {
 public:
  PageStacks(const profile::Profile& profile, Frames& frames) {
    TreeMaker maker(tree_, profile, frames);
    of_sample_.reserve(profile.samples.size());
    for (std::size_t i = 0; i < profile.samples.size(); ++i) {
      maker.prefetch(i, profile.samples.size());
      of_sample_.push_back(maker.node_of(i, profile.samples[i]));
    }
  }

  // Writes the nodes' columns, and gives back the tree. Returns how many nodes there are. To be called once.
  std::uint32_t write_nodes(PageTable& table, std::size_t frame_count) {
    std::vector<std::uint32_t> numbers(tree_.size());  // of each node of the tree: its place in preorder
    std::vector<std::uint32_t> of_frame(frame_count, kNone);
    std::string frames;
    std::uint32_t node = 0;
    std::size_t depth = 0;  // of the last node
    struct Todo {
      std::uint32_t node, parent_depth;
    };
    std::vector<Todo> todo;
    std::vector<std::uint32_t> children;
    const auto add_children = [&](std::uint32_t of, std::uint32_t at) {
      children.clear();
      for (auto child = tree_[of].first_child; child != kNone; child = tree_[child].next_sibling)
        children.push_back(child);
      if (children.size() > 1)
        std::ranges::sort(children, std::ranges::greater(), [&](std::uint32_t one) { return tree_[one].frame; });
      for (const std::uint32_t child : children) todo.push_back({child, at});
    };
    for (add_children(0, 0); !todo.empty();) {
      const auto [at, parent_depth] = todo.back();
      todo.pop_back();
      put_uleb128(table.bytes, depth - parent_depth);
      depth = parent_depth + 1;
      numbers[at] = ++node;
      std::uint32_t& number = of_frame[tree_[at].frame];
      const auto next = static_cast<std::uint32_t>(table.frames.size());
      put_uleb128(frames, number == kNone ? 0 : next - number);
      if (number == kNone) {
        number = next;
        table.frames.push_back(tree_[at].frame);
      }
      add_children(at, parent_depth + 1);
    }
    table.bytes += frames;
    for (std::uint32_t& of : of_sample_) of = numbers[of];
    tree_ = std::vector<TreeNode>();
    return node;
  }
  // Of the columns, once they are written.
  [[nodiscard]] std::uint32_t node_of(std::size_t sample) const { return of_sample_[sample]; }

 private:
  std::vector<TreeNode> tree_;
  std::vector<std::uint32_t> of_sample_;  // its node of the tree; then of the columns
};

// `entry_of`: where each sample is then.
std::vector<PageEntry> entries_of(const profile::Profile& profile, const PageStacks& stacks,
                                  const std::vector<std::uint32_t>& pids, const std::vector<std::uint32_t>& modules,
                                  std::vector<std::uint32_t>& entry_of) {
  std::unordered_map<std::uint32_t, std::uint32_t> process_of;
  for (std::uint32_t i = 0; i < pids.size(); ++i) process_of.emplace(pids[i], i);
  std::vector<PageEntry> entries;
  entries.reserve(profile.samples.size());
  for (std::size_t i = 0; i < profile.samples.size(); ++i) {
    const Sample& sample = profile.samples[i];
    static const profile::Location kNothing;
    const auto& innermost = sample.locations.empty() ? kNothing : profile.locations[sample.locations.front()];
    entries.push_back({.node = stacks.node_of(i),
                       .process = process_of.at(sample.pid),
                       .event = sample.event,
                       .labels = sample.labels,
                       .end = sample.end,
                       .certainty = sample.certainty,
                       .module = innermost.module < modules.size() ? modules[innermost.module] + 1 : 0,
                       .line = innermost.lines.empty() ? 0 : innermost.lines.front().line,
                       .count = sample.count,
                       .value = profile.events[sample.event].period != 0 ? 0 : sample.value,
                       .sample = static_cast<std::uint32_t>(i)});
  }
  std::ranges::sort(entries, {}, &PageEntry::key);
  entry_of.resize(entries.size());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i != 0 && entries[kept].key() == entries[i].key()) {
      entries[kept].count += entries[i].count;
      entries[kept].value += entries[i].value;
    } else {
      kept += i != 0 ? 1 : 0;
      entries[kept] = entries[i];
    }
    entry_of[entries[i].sample] = static_cast<std::uint32_t>(kept);
  }
  if (!entries.empty()) entries.resize(kept + 1);
  return entries;
}

}  // namespace

std::vector<std::uint32_t> page_modules(const profile::Profile& profile) {
  std::unordered_map<std::string_view, std::uint32_t> by_name;
  std::vector<std::uint32_t> numbers;
  for (const profile::Module& module : profile.modules)
    numbers.push_back(by_name.try_emplace(module_name(module), by_name.size()).first->second);
  return numbers;
}

PageTable page_table(const profile::Profile& profile, Frames& frames, const std::vector<std::uint32_t>& pids,
                     const std::vector<std::uint32_t>& modules) {
  PageTable table;
  PageStacks stacks(profile, frames);
  const std::uint32_t nodes = stacks.write_nodes(table, frames.size());
  const std::vector<PageEntry> entries = entries_of(profile, stacks, pids, modules, table.entry_of);
  std::string counts;
  put_uleb128(counts, nodes);
  put_uleb128(counts, entries.size());
  table.bytes.insert(0, counts);
  std::uint32_t node = 0;
  for (const PageEntry& entry : entries) {
    put_uleb128(table.bytes, entry.node - node);
    node = entry.node;
  }
  for (const auto column : {&PageEntry::process, &PageEntry::event, &PageEntry::labels, &PageEntry::end,
                            &PageEntry::certainty, &PageEntry::module, &PageEntry::line})
    for (const PageEntry& entry : entries) put_uleb128(table.bytes, entry.*column);
  for (const auto column : {&PageEntry::count, &PageEntry::value})
    for (const PageEntry& entry : entries) put_uleb128(table.bytes, entry.*column);
  return table;
}

}  // namespace windlass::exporter
