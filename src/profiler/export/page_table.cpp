#include "profiler/export/page_table.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <unordered_map>

#include "base/leb128.h"
#include "profiler/export/stacks.h"

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

// The distinct stacks in lexicographical order, so that each begins with what it shares with the one before.
class PageStacks {
 public:
  PageStacks(const profile::Profile& profile, Frames& frames) {
    const StackNodes nodes(profile);
    DistinctStacks distinct(profile, nodes, {});
    of_sample_.reserve(profile.samples.size());
    for (const Sample& sample : profile.samples) of_sample_.push_back(distinct.add(sample, 1));
    std::vector<std::uint32_t> path;
    constexpr std::size_t kMostRoots = 3;  // a group, the thread's name, "[truncated]"
    std::size_t most = 0;
    for (const auto& stack : distinct.stacks()) {
      most += kMostRoots;
      for (const std::uint32_t location : stack.sample->locations) most += frames.of_location(location).size();
    }
    pool_.reserve(most);
    for (const auto& stack : distinct.stacks()) {
      frames.path_of(*stack.sample, path);
      begins_.push_back(pool_.size());
      pool_.insert(pool_.end(), path.begin(), path.end());
    }
    begins_.push_back(pool_.size());
  }

  // Writes the nodes' columns. Returns how many nodes there are.
  std::uint32_t write_nodes(PageTable& table, std::size_t frame_count) {
    nodes_.resize(begins_.size() - 1);
    std::vector<std::uint32_t> numbers(frame_count, kNone);
    std::string frames;
    std::uint32_t node = 0;
    std::size_t depth = 0;  // of the last node
    std::span<const std::uint32_t> before;
    for (const Key& key : sorted()) {
      const std::uint32_t stack = key.stack;
      const auto now = path(stack);
      const auto differs = std::ranges::mismatch(before, now).in2;
      for (auto frame = differs; frame != now.end(); ++frame) {
        const auto parent_depth = static_cast<std::size_t>(frame - now.begin());
        put_uleb128(table.bytes, depth - parent_depth);
        depth = parent_depth + 1;
        ++node;
        std::uint32_t& number = numbers[*frame];
        const auto next = static_cast<std::uint32_t>(table.frames.size());
        put_uleb128(frames, number == kNone ? 0 : next - number);
        if (number != kNone) continue;
        number = next;
        table.frames.push_back(*frame);
      }
      nodes_[stack] = node;  // stacks of different locations can be of the same frames
      before = now;
    }
    table.bytes += frames;
    return node;
  }
  [[nodiscard]] std::uint32_t node_of(std::size_t sample) const { return nodes_[of_sample_[sample]]; }

 private:
  struct Key {
    std::uint32_t stack;
    std::uint32_t frame;  // at the depth that is sorted by, + 1; 0 behind the end
    const std::uint32_t *path, *path_end;
  };
  // Branch by branch, so that frames which many stacks share are read once, and not at each comparison. Few stacks stay
  // in the cache.
  static constexpr std::size_t kFew = 64;
  [[nodiscard]] std::vector<Key> sorted() const {
    struct Group {
      std::size_t begin, end, depth;  // keys that agree up to the depth
    };
    std::vector<Key> keys;
    for (std::uint32_t stack = 0; stack + 1 < begins_.size(); ++stack)
      keys.push_back({stack, 0, pool_.data() + begins_[stack], pool_.data() + begins_[stack + 1]});
    std::vector<Group> todo{{0, keys.size(), 0}};
    while (!todo.empty()) {
      const Group group = todo.back();
      todo.pop_back();
      const auto here = std::span(keys).subspan(group.begin, group.end - group.begin);
      if (here.size() <= kFew) {
        std::ranges::sort(here, std::ranges::lexicographical_compare,
                          [&](const Key& key) { return std::span(key.path + group.depth, key.path_end); });
        continue;
      }
      const std::size_t branch = common_depth(here, group.depth);
      for (Key& key : here) key.frame = key.path + branch == key.path_end ? 0 : key.path[branch] + 1;
      std::ranges::stable_sort(here, {}, &Key::frame);  // so that paths are read in the order of their places
      for (std::size_t begin = 0, end = 0; begin < here.size(); begin = end) {
        while (end < here.size() && here[end].frame == here[begin].frame) ++end;
        if (end - begin > 1 && here[begin].frame != 0)
          todo.push_back({group.begin + begin, group.begin + end, branch + 1});
      }
    }
    return keys;
  }
  // Up to which depth all agree, who do so up to `depth`.
  [[nodiscard]] static std::size_t common_depth(std::span<const Key> keys, std::size_t depth) {
    const std::uint32_t *const from = keys.front().path + depth, *to = keys.front().path_end;
    constexpr std::size_t kAhead = 8;  // each path is somewhere else in memory
    for (std::size_t i = 1; i < keys.size(); ++i) {
      if (i + kAhead < keys.size()) __builtin_prefetch(keys[i + kAhead].path + depth);
      to = std::mismatch(from, to, keys[i].path + depth, keys[i].path_end).first;
    }
    return depth + static_cast<std::size_t>(to - from);
  }
  [[nodiscard]] std::span<const std::uint32_t> path(std::uint32_t stack) const {
    return {pool_.data() + begins_[stack], begins_[stack + 1] - begins_[stack]};
  }
  std::vector<std::uint32_t> of_sample_;  // -> distinct stack
  std::vector<std::uint32_t> pool_;       // the stacks' frames, root first
  std::vector<std::size_t> begins_;       // of each stack in the pool, then the pool's end
  std::vector<std::uint32_t> nodes_;      // of each stack: where it ends
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
