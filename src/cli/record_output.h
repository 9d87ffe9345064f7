// What `windlass record` says on the terminal, and where it puts the profile.
#pragma once

#include <atomic>
#include <string>

#include "cli/say.h"
#include "profiler/samples/recorder.h"
#include "symbols/symbolize.h"
#include "windlass/error.h"

namespace windlass::cli {

// How the recording goes: one line, rewritten in place; where stderr is no terminal, a line every 5 seconds.
class ProgressLine {
 public:
  ProgressLine();
  // What begins, once nothing has refused it: a refusal is one line.
  void begin(const std::string& text);
  void show(const profiler::RecordingProgress& progress);
  void note(const std::string& text);  // on terminals only
  void clear();

 private:
  static constexpr double kPlainInterval = 5;  // seconds

  bool terminal_;
  bool shown_ = false;
  double next_plain_ = kPlainInterval;
};

// The file a profile goes to. Regular files are written beside and renamed. "-" is standard output: from then on all
// else that this program and the command write there goes to stderr.
class ProfileFile {
 public:
  explicit ProfileFile(const std::string& path);
  // Can it be written? Asked before sampling; leaves nothing behind.
  [[nodiscard]] std::expected<void, std::string> check() const;
  [[nodiscard]] Expected<void> write(const profile::Profile& profile,
                                     const std::atomic<bool>* given_up = nullptr) const;
  // Checkpoints make sense: it is not a pipe or a device.
  [[nodiscard]] bool replaceable() const;
  // As people know it.
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string path_, name_;
  int descriptor_ = -1;  // of what was standard output
};

// "12,345 samples in 10.0 s, 99.97% complete, ..." and what was truncated where.
void print_summary(profiler::Recorder& recorder, const profile::Profile& profile, bool verbose);
// How many addresses have names. Nothing if none was looked up.
void print_names(const symbols::SymbolizeStats& named);

}  // namespace windlass::cli
