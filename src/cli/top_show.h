// The thread of `windlass top` that shows: on the terminal, or as text.
#pragma once

#include <cstddef>

#include "cli/quick_names.h"
#include "cli/top_feed.h"
#include "cli/top_terminal.h"
#include "profiler/export/top_model.h"
#include "profiler/samples/recorder.h"

namespace windlass::cli {

// What the two ways of showing have in common. Leaves the feed when nothing more is to be shown.
class TopShow {
 public:
  // All must outlive it. `signals`: readable once a signal has come that ends the command.
  TopShow(TopFeed& feed, exporter::TopModel& model, const profiler::Recorder& recorder, int signals);

  void on_terminal(TopTerminal& terminal, int resized);
  // Prints after each second, `pages` times; 0: until the end. Returns the error of writing, or 0.
  int as_text(std::size_t pages, std::size_t width, std::size_t rows);

 private:
  bool take_seconds();
  void write_whole();

  TopFeed& feed_;
  exporter::TopModel& model_;
  std::vector<profiler::EventSpec> events_;
  int signals_;
  QuickNames names_;
};

}  // namespace windlass::cli
