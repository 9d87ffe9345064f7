// What `record` and `top` do before the first sample, and when a command outlives the recording.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "profiler/doctor/system_error.h"
#include "profiler/processes/child_command.h"
#include "profiler/samples/recorder.h"

namespace windlass::cli {

// Says on stderr why `command` ("record") is refused. Returns the exit status.
int refuse_recording(std::string_view command, const std::string& text);
// With the kind of refusal as a word for programs. If `verbose`, with all that libbpf and the verifier said.
int refuse_recording(std::string_view command, const profiler::SystemError& error, bool verbose);

// As long as this lives, a signal ends the program at once, whatever the system is asked for then.
class EndedBySignal {
 public:
  using Last = std::function<int()>;
  // `signals`: readable once one has come. `last` is done then, on a thread of its own, and gives the exit status.
  EndedBySignal(int signals, Last last);
  // Before sampling there is nothing to keep. `message`: said then.
  EndedBySignal(int signals, std::string message);
  ~EndedBySignal();
  EndedBySignal(const EndedBySignal&) = delete;
  EndedBySignal& operator=(const EndedBySignal&) = delete;

 private:
  void wait(int signals) const;

  Last last_;
  int over_;
  std::thread thread_;
};

// If stderr is closed, another file could get its number, and messages would be written there. So open the standard
// files.
void open_standard_files();

// A file that is no program and no script stands where the command should. Says on stderr which command reads it.
[[nodiscard]] bool is_another_kind(const std::vector<std::string>& command);

// "./app", "process 12", "the whole machine".
[[nodiscard]] std::string subject_of(const profiler::RecorderOptions& options);

// The command's own status, once the recording is over. A command that outlives the recording is told to end, and
// waited for. The user has asked for that end, so the status is 0.
[[nodiscard]] int command_status(profiler::ChildCommand& command);

}  // namespace windlass::cli
