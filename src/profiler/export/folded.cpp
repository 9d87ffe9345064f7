#include "profiler/export/folded.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/shown.h"
#include "profiler/export/call_tree.h"

namespace windlass::exporter {

// ';' separates frames, and a line is a stack: neither may come from a name.
std::string folded_name(const std::string& name) {
  std::string text = shown(name);
  std::ranges::replace(text, ';', ':');
  return text;
}

Expected<void> write_folded(const profile::Profile& profile, TextWriter& out, profile::ValueType type) {
  Frames frames(profile);
  const CallTree tree(profile, frames, type);
  const auto& nodes = tree.nodes();
  std::vector<std::string> names(frames.size());
  std::string line;
  // Depth first without recursion: `line` holds the path, `ends` where each level's name ends.
  std::vector<std::size_t> ends{0};
  std::uint32_t node = nodes[0].first_child;
  while (node != profile::kNone) {
    line.resize(ends.back());
    if (ends.size() > 1) line += ';';
    std::string& name = names[nodes[node].frame];
    if (name.empty()) name = folded_name(frames[nodes[node].frame].name);
    line += name;
    if (nodes[node].self != 0) {
      out.text(line);
      out.text(fmt::format(" {}\n", nodes[node].self));
    }
    if (nodes[node].first_child != profile::kNone) {
      ends.push_back(line.size());
      node = nodes[node].first_child;
      continue;
    }
    while (node != 0 && nodes[node].next_sibling == profile::kNone) {
      node = nodes[node].parent;
      if (node != 0) ends.pop_back();
    }
    if (node == 0) break;
    node = nodes[node].next_sibling;
  }
  return out.finish();
}

}  // namespace windlass::exporter
