// What `windlass record` says on the terminal, and where it puts the profile.
#pragma once

#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "agent/recorder.h"
#include "windlass/error.h"

namespace windlass::cli {

// To stderr. A message that cannot be written (a full disk, a reader that has gone) costs no data: it is let go.
template <typename... Parts>
void say(fmt::format_string<Parts...> format, Parts&&... parts) {
  const std::string text = fmt::format(format, std::forward<Parts>(parts)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

// One line, rewritten in place; silent where stderr is no terminal.
class ProgressLine {
 public:
  ProgressLine();
  void show(const agent::RecordingProgress& progress);
  void note(const std::string& text);
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
};

// The file a profile goes to. Regular files are written beside and renamed.
class ProfileFile {
 public:
  explicit ProfileFile(std::string path) : path_(std::move(path)) {}
  // Can it be written? Asked before sampling; leaves nothing behind.
  [[nodiscard]] Expected<void> check() const;
  [[nodiscard]] Expected<void> write(const profile::Profile& profile) const;
  // Checkpoints make sense: it is not a pipe or a device.
  [[nodiscard]] bool replaceable() const;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// "12,345 samples in 10.0 s, 99.97% complete, ..." and what was truncated where.
void print_summary(agent::Recorder& recorder, const profile::Profile& profile, bool verbose);

}  // namespace windlass::cli
