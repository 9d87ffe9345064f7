#include "profiler/export/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "base/shown.h"
#include "profiler/export/call_tree.h"
#include "profiler/export/labels.h"
#include "profiler/export/numbers.h"
#include "profiler/export/shorten_name.h"
#include "profiler/export/values.h"

namespace windlass::exporter {

namespace {

using profile::kNone;

constexpr const char* kBold = "\x1b[1m";
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kRed = "\x1b[31m";
constexpr const char* kYellow = "\x1b[33m";
constexpr const char* kMagenta = "\x1b[35m";
constexpr const char* kCyan = "\x1b[36m";
constexpr const char* kReset = "\x1b[0m";

// A run of frames that each have one caller's worth of samples: printed as one block at one indentation.
struct Chain {
  std::vector<std::uint32_t> nodes;
  std::vector<std::uint32_t> shown_children;  // heads of chains, by descending total
};

class ReportWriter {
 public:
  ReportWriter(const profile::Profile& profile, TextWriter& out, const ReportOptions& options)
      : profile_(profile),
        out_(out),
        options_(options),
        type_(options.value.value_or(shown_by_default(profile))),
        unit_(unit_of(profile, type_)),
        frames_(profile),
        tree_(profile, frames_, type_),
        totals_(totals_of(profile, type_)) {}

  Expected<void> write() {
    write_header();
    if (totals_.samples == 0) return out_.finish();
    if (!options_.label.empty()) {
      write_label();
    } else {
      write_label_shares();
      write_functions();
      write_tree();
    }
    return out_.finish();
  }

 private:
  std::string coloured(const char* colour, const std::string& text) const {
    return options_.colour && colour != nullptr ? colour + text + kReset : text;
  }
  [[nodiscard]] double share(std::uint64_t count) const {
    return static_cast<double>(count) / static_cast<double>(totals_.samples);
  }
  [[nodiscard]] std::string percent(std::uint64_t count) const {
    const double part = share(count);
    return coloured(part >= 0.1 ? kRed : part >= 0.02 ? kYellow : nullptr, fmt::format("{:6.2f}%", 100 * part));
  }
  [[nodiscard]] const char* colour_of(const Frame& frame) const {
    if (frame.kind == FrameKind::kTruncated) return kMagenta;
    if (frame.kind == FrameKind::kComm) return kBold;
    return frame.module < profile_.modules.size() && profile_.modules[frame.module].is_kernel ? kCyan : nullptr;
  }

  void write_header() {
    out_.text(fmt::format("{}\n", coloured(kBold, summary_line(profile_, type_, totals_))));
    for (std::uint8_t end = 0; end < WL_END_COUNT; ++end)
      if (totals_.by_end[end] != 0 && profile::is_truncated(end))
        out_.text(fmt::format("  {} {}: {} ({:.2f}%)\n", coloured(kMagenta, "truncated"), profile::end_text(end),
                              amount(totals_.by_end[end], unit_), 100 * share(totals_.by_end[end])));
    for (const auto& comment : profile_.comments)
      out_.text(coloured(kDim, "  " + shorten_name(comment, options_.width - 2)) + "\n");
    write_other_values();
  }

  // What else the profile has: "--value off-cpu shows 12.3 s". With a period, an event's two values have equal shares.
  void write_other_values() {
    std::size_t found = 0;
    std::vector<NamedValue> others = named_values(profile_);
    std::erase_if(others, [&](const NamedValue& one) {
      const profile::ValueType type = one.type;
      const bool same = event_of(profile_, type).period != 0 && type.counts != shown_of(profile_, type.event).counts;
      return same || (type.event == type_.event && type.counts == type_.counts);
    });
    std::vector<profile::ValueType> types;
    for (const NamedValue& one : others) types.push_back(one.type);
    const std::vector<std::uint64_t> sums = sums_of(profile_, types);
    for (std::size_t i = 0; i < others.size(); ++i) {
      if (sums[i] == 0 || ++found > kOtherValues) continue;
      out_.text(coloured(kDim, fmt::format("  --value {} shows {}\n", shown(others[i].name),
                                           amount(sums[i], unit_of(profile_, types[i])))));
    }
    if (found > kOtherValues) out_.text(coloured(kDim, fmt::format("  {} more values\n", found - kOtherValues)));
  }

  // "LABEL reason: futex 61.2%, epoll_wait 30.1%, 4 more", cut to a line.
  void write_label_shares() {
    const std::vector<LabelShares> labels = label_shares(profile_, type_);
    for (std::size_t i = 0; i < std::min(labels.size(), kLabels); ++i) {
      const auto& [key, shares, without] = labels[i];
      if (i == 0) out_.text("\n");
      const std::string head = fmt::format("LABEL {}:", shorten_name(key, options_.width / 4));
      std::string line;
      std::size_t left = shares.size();
      const auto more = [&](std::size_t number) { return fmt::format(" {} more", grouped(number)); };
      const std::string none = without != 0 ? fmt::format(" none {:.1f}%", 100 * share(without)) : "";
      const std::size_t used = columns_of(head) + none.size() + more(left).size() + 2;
      for (const LabelShare& one : shares) {
        const std::string part =
            fmt::format(" {} {:.1f}%,", shorten_name(one.text, options_.width / 3), 100 * share(one.weight));
        if (left != shares.size() && used + columns_of(line) + columns_of(part) > options_.width) break;
        line += part;
        --left;
      }
      if (left != 0) line += more(left) + ",";
      line += none;
      if (line.ends_with(',')) line.pop_back();
      out_.text(fmt::format("{}{}\n", coloured(kBold, head), line));
    }
    if (labels.size() > kLabels)
      out_.text(coloured(kDim, fmt::format("  {} more labels", grouped(labels.size() - kLabels))) + "\n");
  }

  void write_label() {
    const LabelShares label = label_shares(profile_, type_, options_.label);
    const std::size_t room = options_.width > 34 ? options_.width - 24 : 10;
    out_.text(fmt::format("\n{}\n", coloured(kBold, fmt::format("  SHARE {:>13}  {}", heading(),
                                                                "LABEL " + shorten_name(label.key, room - 6)))));
    const auto row = [&](const std::string& text, std::uint64_t weight) {
      out_.text(fmt::format("{} {:>13}  {}\n", percent(weight), amount(weight, unit_), shorten_name(text, room)));
    };
    for (const LabelShare& one : label.shares) row(one.text, one.weight);
    if (label.without != 0) row(fmt::format("(no {})", label.key), label.without);
  }

  // The heading of the column of weights.
  [[nodiscard]] std::string heading() const {
    if (unit_ == "bytes") return "BYTES";
    if (unit_ == "count") return name_of(profile_, type_) == "samples" ? "SAMPLES" : "COUNT";
    return says_unit(unit_) ? "TIME" : shorten_name(unit_, 10);
  }

  void write_functions() {
    const auto order = functions_by_self(frames_, tree_, options_.functions);
    const auto& counts = tree_.functions();
    const std::size_t shown = std::min(options_.functions, order.size());
    // A narrow terminal has no room for weights and modules beside names.
    constexpr std::size_t kNarrow = 70;
    const bool wide = options_.width >= kNarrow;
    const std::size_t module_width = wide ? std::clamp<std::size_t>(options_.width / 5, 10, 24) : 0;
    const std::size_t fixed = wide ? 8 + 9 + 11 + module_width + 4 : 8 + 9 + 2;
    const std::size_t name_width = options_.width > fixed + 10 ? options_.width - fixed : 10;
    const std::string weights = wide ? fmt::format(" {:>10}", heading()) : "";
    const std::string modules = wide ? fmt::format("{:{}}  MODULE", "FUNCTION", name_width) : "FUNCTION";
    out_.text(fmt::format("\n{}\n", coloured(kBold, fmt::format("   SELF    TOTAL{}  {}", weights, modules))));
    for (std::size_t i = 0; i < shown; ++i) {
      const Frame& frame = frames_[order[i]];
      const auto& count = counts[order[i]];
      const std::string name = shorten_name(frame.name, name_width);
      if (!wide) {
        out_.text(
            fmt::format("{}  {}  {}\n", percent(count.self), percent(count.total), coloured(colour_of(frame), name)));
        continue;
      }
      const std::string padding(name_width - std::min(name_width, columns_of(name)), ' ');
      const std::string module = shorten_name(module_text(profile_, frame), module_width);
      out_.text(fmt::format("{}  {} {:>10}  {}{}  {}\n", percent(count.self), percent(count.total),
                            amount(count.self, unit_), coloured(colour_of(frame), name), padding,
                            coloured(kDim, module)));
    }
    if (shown < order.size())
      out_.text(coloured(kDim, fmt::format("   … {} more functions\n", grouped(order.size() - shown))));
  }

  // Frames below `head` as long as nearly all of its samples go one way.
  Chain chain_from(std::uint32_t head) {
    const auto& nodes = tree_.nodes();
    Chain chain{.nodes = {head}, .shown_children = {}};
    for (std::uint32_t node = head;;) {
      const std::uint32_t child = nodes[node].first_child;
      if (child == kNone || static_cast<double>(nodes[child].total) < 0.99 * static_cast<double>(nodes[node].total))
        break;
      chain.nodes.push_back(node = child);
    }
    return chain;
  }

  // The heaviest chains first until the lines are used up; `chains_` then holds what to print.
  void choose_chains() {
    const auto& nodes = tree_.nodes();
    const auto lighter = [&](const auto& a, const auto& b) { return nodes[a.first].total < nodes[b.first].total; };
    std::priority_queue<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::pair<std::uint32_t, std::uint32_t>>,
                        decltype(lighter)>
        queue(lighter);  // (head node, parent chain)
    const auto push_children = [&](std::uint32_t node, std::uint32_t chain) {
      for (auto child = nodes[node].first_child; child != kNone; child = nodes[child].next_sibling) {
        if (share(nodes[child].total) < options_.tree_share) break;
        queue.emplace(child, chain);
      }
    };
    chains_.push_back({.nodes = {0}, .shown_children = {}});
    push_children(0, 0);
    std::size_t lines = 0;
    while (!queue.empty() && lines < options_.tree_lines) {
      const auto [head, parent] = queue.top();
      queue.pop();
      chains_[parent].shown_children.push_back(static_cast<std::uint32_t>(chains_.size()));
      chains_.push_back(chain_from(head));
      lines += std::min<std::size_t>(chains_.back().nodes.size(), kLinesOfChain);
      push_children(chains_.back().nodes.back(), static_cast<std::uint32_t>(chains_.size() - 1));
    }
  }

  void write_tree() {
    choose_chains();
    out_.text(fmt::format("\n{}\n", coloured(kBold, "  TOTAL  CALL TREE (callers above callees)")));
    // Depth first without recursion: (chain, prefix of its children's lines, is the last child).
    struct Todo {
      std::uint32_t chain;
      std::string prefix;
      bool is_last;
    };
    std::vector<Todo> todo;
    const auto push = [&](const Chain& chain, const std::string& prefix) {
      for (std::size_t i = chain.shown_children.size(); i-- > 0;)
        todo.push_back({chain.shown_children[i], prefix, i + 1 == chain.shown_children.size()});
    };
    push(chains_[0], "");
    while (!todo.empty()) {
      const Todo at = std::move(todo.back());
      todo.pop_back();
      const bool is_top = tree_.nodes()[chains_[at.chain].nodes[0]].parent == 0;
      const std::string below = at.prefix + (is_top ? "" : at.is_last ? "  " : "│ ");
      write_chain(chains_[at.chain], at.prefix + (is_top ? "" : at.is_last ? "└ " : "├ "), below);
      push(chains_[at.chain], below);
    }
    out_.text(coloured(kDim, fmt::format("  (subtrees below {:.3g}% of the samples, or past {} lines, are not shown)\n",
                                         100 * options_.tree_share, options_.tree_lines)));
  }

  void write_chain(const Chain& chain, const std::string& first, const std::string& rest) {
    const std::size_t size = chain.nodes.size();
    for (std::size_t i = 0; i < size; ++i) {
      if (size > kLinesOfChain && i == kLinesOfChain - 3) {
        const std::size_t left_out = size - (kLinesOfChain - 1);
        out_.text(coloured(kDim, fmt::format("         {}⋮ {} more frames\n", indent(rest), left_out)));
        i += left_out;
      }
      const TreeNode& node = tree_.nodes()[chain.nodes[i]];
      const Frame& frame = frames_[node.frame];
      const std::string lead = indent(i == 0 ? first : rest);
      const std::size_t used = 9 + columns_of(lead);
      std::string self;
      if (share(node.self) >= 0.001) self = fmt::format("  self {:.2f}%", 100 * share(node.self));
      const std::size_t room = options_.width > used + self.size() + 10 ? options_.width - used - self.size() : 10;
      out_.text(fmt::format("{}  {}{}{}\n", percent(node.total), lead,
                            coloured(colour_of(frame), shorten_name(frame.name, room)), coloured(kDim, self)));
    }
  }
  // At most half of the width goes to indentation; what is deeper says how deep.
  [[nodiscard]] std::string indent(const std::string& lead) const {
    const std::size_t columns = columns_of(lead), most = options_.width / 2;
    if (columns <= most) return lead;
    return fmt::format("{}↳{} ", std::string(most > 8 ? most - 8 : 0, ' '), columns / 2);
  }

  static constexpr std::size_t kLinesOfChain = 6;
  static constexpr std::size_t kLabels = 8, kOtherValues = 16;

  const profile::Profile& profile_;
  TextWriter& out_;
  const ReportOptions& options_;
  const profile::ValueType type_;
  const std::string& unit_;
  Frames frames_;
  CallTree tree_;
  Totals totals_;
  std::vector<Chain> chains_;
};

}  // namespace

Expected<void> write_report(const profile::Profile& profile, TextWriter& out, const ReportOptions& options) {
  return ReportWriter(profile, out, options).write();
}

}  // namespace windlass::exporter
