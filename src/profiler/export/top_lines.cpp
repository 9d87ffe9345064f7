// The lines that TopModel shows.
#include <algorithm>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

#include "base/shown.h"
#include "profiler/export/numbers.h"
#include "profiler/export/shorten_name.h"
#include "profiler/export/top_model.h"

namespace windlass::exporter {
namespace {

constexpr std::size_t kHeadLines = 3, kBottomLines = 1;
constexpr double kHotShare = 0.1, kWarmShare = 0.02;
constexpr const char* kKeys = "q quit  h help  / filter  s sort  p pause";
constexpr const char* kHelp[] = {
    "1 2 3 4, Tab   functions, processes, tree, labels",
    "Up, Down       another row; also PgUp, PgDn, Home, End",
    "Enter          open or close a row of the tree",
    "Right, Left    open; close, or go to the caller",
    "/              show what has this text only; Esc: all",
    "s              sort by another column",
    "t              the last seconds, or all since the start",
    "p, space       pause, and go on",
    "e              the next event",
    "w              write a profile: what file, is asked",
    "q              quit",
    "",
    "any key leaves this page",
};

TopLine plain_line(std::string_view text, std::size_t width, TopStyle style = TopStyle::kPlain) {
  return {.spans = {{cut_line(text, width), style}}};
}

std::string padded(std::string text, std::size_t width) {
  const std::size_t columns = columns_of(text);
  if (columns < width) text.append(width - columns, ' ');
  return text;
}

// As many of the parts as there is room for, two spaces between.
TopLine joined(const std::vector<TopSpan>& parts, std::size_t width) {
  TopLine line;
  std::size_t used = 0;
  for (const TopSpan& part : parts) {
    const std::size_t gap = line.spans.empty() ? 0 : 2;
    if (used + gap + columns_of(part.text) > width) continue;
    if (gap != 0) line.spans.push_back({"  ", TopStyle::kPlain});
    line.spans.push_back(part);
    used += gap + columns_of(part.text);
  }
  return line;
}

// Never rounds up to 100%.
std::string percent_of(std::uint64_t part, std::uint64_t whole) {
  if (part == whole) return "100%";
  return fmt::format("{:.1f}%", std::min(99.9, 100.0 * static_cast<double>(part) / static_cast<double>(whole)));
}

const char* sort_text(TopView view, TopSort sort) {
  if (sort == TopSort::kName) return "name";
  if (sort == TopSort::kSelf) return "self";
  return view == TopView::kFunctions || view == TopView::kTree ? "total" : "share";
}

TopStyle style_of(const TopRow& row) {
  if (row.kind == FrameKind::kTruncated) return TopStyle::kTruncated;
  if (row.kind == FrameKind::kComm) return TopStyle::kBold;
  return row.is_kernel ? TopStyle::kKernel : TopStyle::kPlain;
}

// The columns of the last column: modules, containers.
std::size_t last_column(std::size_t width) { return std::clamp<std::size_t>(width / 4, 8, 28); }

// What is left of the width; no column is narrower than this.
std::size_t rest_of(std::size_t width, std::size_t used) { return width > used + 6 ? width - used : 6; }

}  // namespace

std::string text_of(const TopLine& line) {
  std::string text;
  for (const TopSpan& span : line.spans) text += span.text;
  text.resize(text.find_last_not_of(' ') + 1);
  return text;
}

TopSpan TopModel::share_span(std::uint64_t weight) const {
  const double part = share(weight);
  const TopStyle style = part >= kHotShare ? TopStyle::kHot : part >= kWarmShare ? TopStyle::kWarm : TopStyle::kPlain;
  return {fmt::format("{:6.2f}%", 100 * part), style};
}

TopLine TopModel::stats_line(std::size_t width) const {
  if (events_.empty()) return plain_line(fmt::format("{}: no samples yet", subject_), width, TopStyle::kBold);
  const TopSums& sums = shown();
  const double seconds = static_cast<double>(all_time_ ? state().duration_ns : window_ns_) * 1e-9;
  const double rate = seconds > 0 ? static_cast<double>(sums.samples()) / seconds : 0;
  std::vector<TopSpan> parts;
  if (paused()) parts.push_back({"PAUSED", TopStyle::kHot});
  parts.push_back({shorten_name(events_[event_].name, std::max<std::size_t>(width / 4, 3)), TopStyle::kBold});
  parts.push_back({fmt::format("{:.{}f} samples/s", rate, rate < 10 ? 1 : 0), TopStyle::kBold});
  if (sums.samples() != 0) parts.push_back({percent_of(sums.whole(), sums.samples()) + " whole", TopStyle::kPlain});
  parts.push_back({fmt::format("{:.0f} s{}", seconds, all_time_ ? " since start" : ""), TopStyle::kPlain});
  const std::uint64_t lost = all_time_ ? state().lost : window_lost_;
  parts.push_back({fmt::format("{} lost", grouped(lost)), lost != 0 ? TopStyle::kHot : TopStyle::kPlain});
  parts.push_back({shorten_name(subject_, std::max<std::size_t>(width / 3, 3)), TopStyle::kDim});
  return joined(parts, width);
}

TopLine TopModel::view_line(std::size_t width) const {
  std::vector<TopSpan> parts;
  for (std::size_t i = 0; i < std::size(kTopViews); ++i) {
    const bool is_it = i == static_cast<std::size_t>(view_);
    parts.push_back(
        {is_it ? fmt::format("[{}]", kTopViews[i]) : kTopViews[i], is_it ? TopStyle::kBold : TopStyle::kDim});
  }
  if (!filter_.empty())
    parts.push_back({"/" + shorten_name(filter_, std::max<std::size_t>(width / 5, 3)), TopStyle::kHot});
  parts.push_back({fmt::format("by {}", sort_text(view_, sort())), TopStyle::kDim});
  return joined(parts, width);
}

TopLine TopModel::heading_line(std::size_t width) const {
  const std::size_t last = last_column(width);
  std::string text;
  switch (view_) {
    case TopView::kFunctions:
      text = padded("   SELF   TOTAL  FUNCTION", width - std::min(width, last)) + "MODULE";
      break;
    case TopView::kProcesses:
      text = padded("  SHARE      PID  PROCESS", width - std::min(width, last)) + "CONTAINER";
      break;
    case TopView::kTree: text = "  TOTAL    SELF  CALL TREE (callers above callees)"; break;
    case TopView::kLabels: text = "  SHARE  " + padded("LABEL", last) + "  VALUE"; break;
  }
  return plain_line(text, width, TopStyle::kBold);
}

TopLine TopModel::row_line(const TopRow& row, std::size_t width) const {
  TopLine line;
  const std::size_t last = last_column(width);
  const auto add = [&](std::string text, TopStyle style = TopStyle::kPlain) {
    line.spans.push_back({std::move(text), style});
  };
  const auto add_last = [&](std::size_t used) {
    const std::size_t room = rest_of(width, used + last);
    add(padded(shorten_name(row.name, room - 1), room), style_of(row));
    add(shorten_name(row.detail, last), TopStyle::kDim);
  };
  switch (view_) {
    case TopView::kFunctions:
      line.spans = {share_span(row.self), {" ", TopStyle::kPlain}, share_span(row.total), {"  ", TopStyle::kPlain}};
      add_last(17);
      break;
    case TopView::kProcesses:
      line.spans = {share_span(row.total),
                    {fmt::format(" {:>8}  ", row.pid == 0 ? "" : std::to_string(row.pid)), TopStyle::kPlain}};
      add_last(18);
      break;
    case TopView::kTree: {
      line.spans = {share_span(row.total), {" ", TopStyle::kPlain}, share_span(row.self)};
      const std::size_t indent = std::min<std::size_t>(row.depth, width / 4);  // deeper rows stand below one another
      const char* mark = !row.has_children ? "  " : row.is_open ? "- " : "+ ";
      add(fmt::format("  {:{}}{}", "", indent, mark));
      add(shorten_name(row.name, rest_of(width, 19 + indent)), style_of(row));
      break;
    }
    case TopView::kLabels:
      line.spans = {share_span(row.total)};
      add("  " + padded(shorten_name(row.name, last), last) + "  ");
      add(shorten_name(row.detail, rest_of(width, 11 + last)));
      break;
  }
  return line;
}

TopLine TopModel::bottom_line(std::size_t width) const {
  if (mode_ == Mode::kFilter) return plain_line("filter: " + input_ + "_", width, TopStyle::kBold);
  if (mode_ == Mode::kWrite) return plain_line("write the profile into: " + input_ + "_", width, TopStyle::kBold);
  if (!message_.empty()) return plain_line(message_, width, TopStyle::kBold);
  return plain_line(kKeys, width, TopStyle::kDim);
}

void TopModel::add_rows(std::vector<TopLine>& lines, std::size_t width, std::size_t from, std::size_t number) const {
  for (std::size_t i = from; i < rows_.size() && i < from + number; ++i) lines.push_back(row_line(rows_[i], width));
  if (rows_.empty() && number != 0)
    lines.push_back(plain_line(filter_.empty() ? "  no samples" : "  nothing has this text", width, TopStyle::kDim));
}

std::vector<TopLine> TopModel::page(std::size_t width, std::size_t most_rows) {
  std::vector<TopLine> lines = {stats_line(width), view_line(width), heading_line(width)};
  add_rows(lines, width, 0, most_rows);
  return lines;
}

std::vector<TopLine> TopModel::screen(std::size_t width, std::size_t height) {
  std::vector<TopLine> lines;
  if (mode_ == Mode::kHelp) {
    for (const char* line : kHelp) lines.push_back(plain_line(line, width));
    lines.resize(height);
    return lines;
  }
  page_ = height > kHeadLines + kBottomLines ? height - kHeadLines - kBottomLines : 1;
  first_ = std::min(first_, selected_);
  if (selected_ >= first_ + page_) first_ = selected_ - page_ + 1;
  lines = {stats_line(width), view_line(width), heading_line(width)};
  add_rows(lines, width, first_, page_);
  if (!rows_.empty()) lines[kHeadLines + selected_ - first_].is_selected = true;
  lines.resize(height);
  lines.back() = bottom_line(width);
  return lines;
}

}  // namespace windlass::exporter
