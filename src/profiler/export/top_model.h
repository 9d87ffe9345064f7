// What `windlass top` shows, without a terminal: the last seconds and all since the start, four views of them, and what
// keys do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/export/top_sums.h"
#include "profiler/profile/profile.h"

namespace windlass::exporter {

enum class TopSort : std::uint8_t { kSelf, kTotal, kName };

struct TopKey {
  enum class Kind : std::uint8_t {
    kText,
    kUp,
    kDown,
    kLeft,
    kRight,
    kPageUp,
    kPageDown,
    kHome,
    kEnd,
    kEnter,
    kEscape,
    kBackspace,
    kTab
  } kind = Kind::kText;
  std::string text{};  // a character, as UTF-8
};

// What the caller is to do after a key.
enum class TopWish : std::uint8_t { kNone, kQuit, kWrite };

struct TopRow {
  std::uint64_t id = 0;  // the same in the next second
  std::uint64_t self = 0, total = 0;
  std::string name;
  std::string detail;     // module, container, value of a label
  std::uint32_t pid = 0;  // of a process
  unsigned depth = 0;     // in the tree
  bool has_children = false, is_open = false;
  FrameKind kind = FrameKind::kFunction;
  bool is_kernel = false;
};

enum class TopStyle : std::uint8_t { kPlain, kBold, kDim, kHot, kWarm, kKernel, kTruncated };
struct TopSpan {
  std::string text;  // shown()
  TopStyle style = TopStyle::kPlain;
};
struct TopLine {
  std::vector<TopSpan> spans{};
  bool is_selected = false;
};
[[nodiscard]] std::string text_of(const TopLine& line);

class TopModel {
 public:
  // `subject`: what is recorded, for people. `window`: how many seconds are shown together.
  TopModel(std::string subject, std::size_t window) : subject_(std::move(subject)), window_size_(window) {}

  // The next second, its addresses named. All have the same events.
  void add(const profile::Profile& second);
  TopWish press(const TopKey& key);

  void choose(TopView view);
  void choose_filter(std::string text);
  void choose_since_start(bool wanted);
  void choose_event(std::size_t number);
  [[nodiscard]] const std::vector<profile::Event>& events() const { return events_; }
  // Of the line at the bottom, until the next key.
  void tell(std::string message) { message_ = std::move(message); }
  // The file, after TopWish::kWrite.
  [[nodiscard]] const std::string& file() const { return input_; }
  // The rows of the view, filtered and sorted.
  [[nodiscard]] const std::vector<TopRow>& rows() const { return rows_; }
  [[nodiscard]] std::size_t selected() const { return selected_; }
  // The sum that shares are of.
  [[nodiscard]] std::uint64_t weight() const { return weight_; }
  [[nodiscard]] bool paused() const { return paused_at_.has_value(); }

  // `height` lines of at most `width` columns, taking every character as one. Both are 1 at least.
  [[nodiscard]] std::vector<TopLine> screen(std::size_t width, std::size_t height);
  // The lines of a text that is printed: no keys at the bottom, and at most so many rows.
  [[nodiscard]] std::vector<TopLine> page(std::size_t width, std::size_t most_rows);

 private:
  enum class Mode : std::uint8_t { kRows, kFilter, kWrite, kHelp };
  struct Second {
    std::vector<TopSample> samples;
    std::uint64_t duration_ns = 0, lost = 0;
  };
  // All that has come.
  struct State {
    std::deque<Second> window;
    std::vector<TopSums> since_start;  // by event
    std::uint64_t duration_ns = 0, lost = 0;
  };

  [[nodiscard]] const State& state() const { return paused_at_ ? *paused_at_ : now_; }
  [[nodiscard]] const TopSums& shown() const;
  [[nodiscard]] double share(std::uint64_t weight) const;
  [[nodiscard]] bool fits(const TopRow& row) const;
  [[nodiscard]] TopSort sort() const { return sort_[static_cast<std::size_t>(view_)]; }
  void next_sort();
  void renew();
  void make_rows();
  void function_rows();
  void process_rows();
  void tree_rows();
  bool tree_rows_below(const TopSums& sums, std::uint32_t node, unsigned depth, bool all);
  void label_rows();
  void sort_rows();
  [[nodiscard]] bool is_open(const TopSums::Node& node) const;
  void open(bool wanted);
  void select(std::size_t row);
  TopWish press_in_rows(const TopKey& key);
  TopWish press_text(char key);
  TopWish press_in_input(const TopKey& key);

  void add_rows(std::vector<TopLine>& lines, std::size_t width, std::size_t from, std::size_t number) const;
  [[nodiscard]] TopLine stats_line(std::size_t width) const;
  [[nodiscard]] TopLine view_line(std::size_t width) const;
  [[nodiscard]] TopLine heading_line(std::size_t width) const;
  [[nodiscard]] TopLine bottom_line(std::size_t width) const;
  [[nodiscard]] TopLine row_line(const TopRow& row, std::size_t width) const;
  [[nodiscard]] TopSpan share_span(std::uint64_t weight) const;

  std::string subject_;
  std::size_t window_size_;
  TopNames names_;
  std::vector<profile::Event> events_;
  State now_;
  std::optional<State> paused_at_;  // what is shown, while it is paused

  TopSums in_window_;  // of the event and for the view that are shown
  std::uint64_t window_ns_ = 0, window_lost_ = 0;
  std::vector<TopRow> rows_;
  std::uint64_t weight_ = 0;  // when these were made

  TopView view_ = TopView::kFunctions;
  std::array<TopSort, std::size(kTopViews)> sort_{TopSort::kSelf, TopSort::kTotal, TopSort::kTotal, TopSort::kTotal};
  bool all_time_ = false;
  std::size_t event_ = 0;
  std::string filter_;
  std::unordered_map<std::uint64_t, bool> opened_;  // nodes of the tree that the user has opened or closed
  std::size_t selected_ = 0, first_ = 0, page_ = 10;
  std::uint64_t selected_id_ = 0;  // 0: the first row, whichever that is
  Mode mode_ = Mode::kRows;
  std::string input_, message_;
};

}  // namespace windlass::exporter
