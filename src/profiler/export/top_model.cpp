#include "profiler/export/top_model.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/ascii_case.h"
#include "profiler/export/stacks.h"

namespace windlass::exporter {
namespace {

// A node of the tree is open if it has this share, unless the user has opened or closed it.
constexpr double kOpenShare = 0.1;
constexpr std::size_t kDeepest = 512;  // rows of the tree below another
constexpr const char* kProfileFile = "windlass.pb.gz";

bool has_part(std::string_view text, std::string_view part) {
  return !std::ranges::search(text, part, {}, ascii_lower, ascii_lower).empty() || part.empty();
}

// The name that the main thread, else any thread, had in most samples.
std::uint32_t name_of(const TopSums::Process& process) {
  const auto best = std::ranges::max_element(process.names, {},
                                             [](const auto& name) { return std::pair(name.first.first, name.second); });
  return best->first.second;
}

void take_last_character(std::string& text) {
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xc0) == 0x80) text.pop_back();
  if (!text.empty()) text.pop_back();
}

}  // namespace

void TopModel::add(const profile::Profile& second) {
  if (events_.empty()) {
    events_ = second.events;
    event_ = second.shown_event;
    now_.since_start.resize(events_.size());
  }
  Second& added = now_.window.emplace_back(Second{names_.samples_of(second), second.duration_ns, second.lost});
  for (const TopSample& sample : added.samples) now_.since_start[sample.event].add(sample);
  now_.duration_ns += added.duration_ns;
  now_.lost += added.lost;
  if (now_.window.size() > window_size_) now_.window.pop_front();
  if (!paused()) renew();
}

// Adds the window up.
void TopModel::renew() {
  in_window_ = TopSums();
  window_ns_ = window_lost_ = 0;
  for (const Second& second : state().window) {
    window_ns_ += second.duration_ns;
    window_lost_ += second.lost;
    for (const TopSample& sample : second.samples)
      if (sample.event == event_) in_window_.add(sample, view_);
  }
  make_rows();
}

const TopSums& TopModel::shown() const {
  return all_time_ && event_ < state().since_start.size() ? state().since_start[event_] : in_window_;
}

double TopModel::share(std::uint64_t weight) const {
  return weight_ == 0 ? 0 : static_cast<double>(weight) / static_cast<double>(weight_);
}

bool TopModel::fits(const TopRow& row) const {
  return has_part(row.name, filter_) || has_part(row.detail, filter_) ||
         (row.pid != 0 && has_part(fmt::format("{}", row.pid), filter_));
}

// ---- rows -----------------------------------------------------------------------------------------------------------

void TopModel::make_rows() {
  rows_.clear();
  weight_ = shown().weight();
  switch (view_) {
    case TopView::kFunctions: function_rows(); break;
    case TopView::kProcesses: process_rows(); break;
    case TopView::kTree: tree_rows(); break;
    case TopView::kLabels: label_rows(); break;
  }
  if (view_ != TopView::kTree) {
    std::erase_if(rows_, [this](const TopRow& row) { return !fits(row); });
    sort_rows();
  }
  const auto same = std::ranges::find(rows_, selected_id_, &TopRow::id);
  if (selected_id_ != 0 && same != rows_.end()) selected_ = static_cast<std::size_t>(same - rows_.begin());
  selected_ = std::min(selected_, rows_.empty() ? 0 : rows_.size() - 1);
}

void TopModel::sort_rows() {
  const auto key = [this](const TopRow& row) {
    return sort() == TopSort::kSelf ? std::pair(row.self, row.total) : std::pair(row.total, row.self);
  };
  const auto by_name = [](const TopRow& a, const TopRow& b) {
    return std::pair(std::string_view(a.name), a.id) < std::pair(std::string_view(b.name), b.id);
  };
  std::ranges::sort(rows_, [&](const TopRow& a, const TopRow& b) {
    if (sort() == TopSort::kName || key(a) == key(b)) return by_name(a, b);
    return key(a) > key(b);
  });
}

void TopModel::function_rows() {
  for (const auto& [number, count] : shown().functions()) {
    const TopFrame& frame = names_.frame(number);
    if (frame.kind == FrameKind::kComm || frame.kind == FrameKind::kTruncated) continue;
    rows_.push_back({.id = number + std::uint64_t{1},
                     .self = count.self,
                     .total = count.total,
                     .name = frame.name,
                     .detail = frame.module,
                     .kind = frame.kind,
                     .is_kernel = frame.is_kernel});
  }
}

void TopModel::process_rows() {
  for (const auto& [pid, process] : shown().processes())
    rows_.push_back({.id = pid + std::uint64_t{1},
                     .self = process.weight,
                     .total = process.weight,
                     .name = names_.text(name_of(process)),
                     .detail = process.container == profile::kNone ? "" : names_.text(process.container),
                     .pid = pid == TopSums::kOtherProcesses ? 0 : pid});
}

void TopModel::label_rows() {
  for (const auto& [label, weight] : shown().labels())
    rows_.push_back({.id = hash_of_pair(label.first + 1, label.second),
                     .self = weight,
                     .total = weight,
                     .name = names_.text(label.first),
                     .detail = names_.text(label.second)});
}

bool TopModel::is_open(const TopSums::Node& node) const {
  if (!filter_.empty()) return true;
  const auto chosen = opened_.find(node.id);
  return chosen != opened_.end() ? chosen->second : share(node.total) >= kOpenShare;
}

void TopModel::tree_rows() { (void)tree_rows_below(shown(), 0, 0, filter_.empty()); }

// Adds the rows below a node: with a filter those that fit, their callers, and all that they call (`all`). True: there
// are some.
bool TopModel::tree_rows_below(const TopSums& sums, std::uint32_t parent, unsigned depth, bool all) {
  if (depth > kDeepest) return false;
  const auto& nodes = sums.nodes();
  std::vector<std::uint32_t> children = nodes[parent].children;
  std::ranges::sort(children, [&](std::uint32_t a, std::uint32_t b) {
    const auto names = std::pair(&names_.frame(nodes[a].frame).name, &names_.frame(nodes[b].frame).name);
    if (sort() == TopSort::kName || nodes[a].total == nodes[b].total) return *names.first < *names.second;
    return nodes[a].total > nodes[b].total;
  });
  bool any = false;
  for (const std::uint32_t number : children) {
    const TopSums::Node& node = nodes[number];
    const TopFrame& frame = names_.frame(node.frame);
    const std::size_t at = rows_.size();
    rows_.push_back({.id = node.id,
                     .self = node.self,
                     .total = node.total,
                     .name = frame.name,
                     .detail = frame.module,
                     .depth = depth,
                     .has_children = !node.children.empty(),
                     .is_open = is_open(node),
                     .kind = frame.kind,
                     .is_kernel = frame.is_kernel});
    const bool wanted = all || fits(rows_[at]);
    const bool below = rows_[at].is_open && tree_rows_below(sums, number, depth + 1, wanted);
    if (!wanted && !below) rows_.resize(at);
    any |= wanted || below;
  }
  return any;
}

// ---- choices --------------------------------------------------------------------------------------------------------

void TopModel::choose(TopView view) {
  view_ = view;
  selected_ = first_ = 0;
  selected_id_ = 0;
  renew();
}

// By self only where that differs from the total.
void TopModel::next_sort() {
  TopSort& sort = sort_[static_cast<std::size_t>(view_)];
  const TopSort first = view_ == TopView::kFunctions ? TopSort::kSelf : TopSort::kTotal;
  sort = sort == TopSort::kName ? first : sort == TopSort::kSelf ? TopSort::kTotal : TopSort::kName;
  choose(view_);
}

void TopModel::choose_filter(std::string text) {
  filter_ = std::move(text);
  choose(view_);
}

void TopModel::choose_since_start(bool wanted) {
  all_time_ = wanted;
  make_rows();
}

void TopModel::choose_event(std::size_t number) {
  event_ = number;
  renew();
}

// ---- keys -----------------------------------------------------------------------------------------------------------

TopWish TopModel::press(const TopKey& key) {
  message_.clear();
  if (mode_ == Mode::kFilter || mode_ == Mode::kWrite) return press_in_input(key);
  if (mode_ == Mode::kRows) return press_in_rows(key);
  mode_ = Mode::kRows;  // any key leaves the help
  return TopWish::kNone;
}

TopWish TopModel::press_in_input(const TopKey& key) {
  const bool is_filter = mode_ == Mode::kFilter;
  switch (key.kind) {
    case TopKey::Kind::kText: input_ += key.text; break;
    case TopKey::Kind::kBackspace: take_last_character(input_); break;
    case TopKey::Kind::kEnter:
      mode_ = Mode::kRows;
      if (!is_filter && !input_.empty()) return TopWish::kWrite;
      break;
    case TopKey::Kind::kEscape:
      mode_ = Mode::kRows;
      if (is_filter) choose_filter({});
      return TopWish::kNone;
    default: break;
  }
  if (is_filter) choose_filter(input_);
  return TopWish::kNone;
}

void TopModel::select(std::size_t row) {
  if (rows_.empty()) return;
  selected_ = std::min(row, rows_.size() - 1);
  selected_id_ = selected_ == 0 ? 0 : rows_[selected_].id;
}

// The node of the tree that is selected. Closing one that is closed goes to its caller.
void TopModel::open(bool wanted) {
  if (view_ != TopView::kTree || rows_.empty()) return;
  const TopRow& row = rows_[selected_];
  if (row.has_children && row.is_open != wanted) {
    opened_[row.id] = wanted;
    make_rows();
    return;
  }
  if (wanted) return;
  for (std::size_t i = selected_; i-- > 0;)
    if (rows_[i].depth < row.depth) return select(i);
}

TopWish TopModel::press_in_rows(const TopKey& key) {
  switch (key.kind) {
    case TopKey::Kind::kText: return press_text(key.text.size() == 1 ? key.text[0] : '\0');
    case TopKey::Kind::kUp: select(selected_ == 0 ? 0 : selected_ - 1); break;
    case TopKey::Kind::kDown: select(selected_ + 1); break;
    case TopKey::Kind::kPageUp: select(selected_ < page_ ? 0 : selected_ - page_); break;
    case TopKey::Kind::kPageDown: select(selected_ + page_); break;
    case TopKey::Kind::kHome: select(0); break;
    case TopKey::Kind::kEnd: select(rows_.size()); break;
    case TopKey::Kind::kLeft: open(false); break;
    case TopKey::Kind::kRight: open(true); break;
    case TopKey::Kind::kEnter: open(!rows_.empty() && !rows_[selected_].is_open); break;
    case TopKey::Kind::kEscape: choose_filter({}); break;
    case TopKey::Kind::kTab:
      choose(static_cast<TopView>((static_cast<std::size_t>(view_) + 1) % std::size(kTopViews)));
      break;
    case TopKey::Kind::kBackspace: break;
  }
  return TopWish::kNone;
}

TopWish TopModel::press_text(char key) {
  switch (key) {
    case '1':
    case '2':
    case '3':
    case '4': choose(static_cast<TopView>(key - '1')); break;
    case '/':
      mode_ = Mode::kFilter;
      input_ = filter_;
      break;
    case 'w':
      mode_ = Mode::kWrite;
      input_ = kProfileFile;
      break;
    case 's': next_sort(); break;
    case 't': choose_since_start(!all_time_); break;
    case 'e':
      if (!events_.empty()) choose_event((event_ + 1) % events_.size());
      break;
    case 'p':
    case ' ':
      if (paused())
        paused_at_.reset();
      else
        paused_at_ = now_;
      renew();
      break;
    case 'h':
    case '?': mode_ = Mode::kHelp; break;
    case 'q': return TopWish::kQuit;
    default: break;
  }
  return TopWish::kNone;
}

}  // namespace windlass::exporter
