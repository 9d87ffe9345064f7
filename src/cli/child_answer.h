// An answer that a process of its own works out: it may take long, or crash on a damaged file.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "os/descriptor.h"
#include "windlass/error.h"

namespace windlass::cli {

struct WorkedOut {
  bool good = false;  // else `text` says why not
  std::string text;
};

struct ChildLimits {
  std::chrono::seconds patience{20};
  std::size_t most_bytes = std::size_t{16} << 20;
  const char* way_out = "";  // behind the sentence that says that one of them is reached
};

// Not thread-safe. The process is killed with this object. After the patience there is no answer.
class ChildAnswer {
 public:
  // Runs `work` in a fork, which has none of the descriptors above stderr. Errors: kSystem.
  [[nodiscard]] static Expected<ChildAnswer> start(const std::function<WorkedOut()>& work, ChildLimits limits = {});
  ~ChildAnswer();
  ChildAnswer(ChildAnswer&& other) noexcept;
  ChildAnswer& operator=(ChildAnswer&&) = delete;

  // Readable when go_on() has something to do.
  [[nodiscard]] int descriptor() const { return pipe_.get(); }
  // Takes what has come, without waiting. False: nothing more will come; answer() has it.
  [[nodiscard]] bool go_on();
  [[nodiscard]] WorkedOut answer() const;

 private:
  ChildAnswer(pid_t child, os::Descriptor pipe, ChildLimits limits);

  pid_t child_;
  os::Descriptor pipe_;
  ChildLimits limits_;
  std::chrono::steady_clock::time_point until_;
  std::string bytes_;  // the text, then '+' or '-'
  bool late_ = false;
};

}  // namespace windlass::cli
