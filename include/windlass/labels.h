// Labels that a program sets for its own threads, so that profilers tell the samples of one request from those of
// another. c/labels.h describes them, and their limits. Linux.
//
// For example:
//
//   static const windlass::LabelKey kRoute("http.route");
//
//   void serve(const Request& request) {
//     const windlass::ThreadLabel label(kRoute, request.route);
//     ...
//   }
#pragma once

#include <cstdint>
#include <string_view>

#include "windlass/c/labels.h"

namespace windlass {

// A key of labels. Thread-safe.
class LabelKey {
 public:
  // status() says whether there is a key now. Without one, labels are not set.
  explicit LabelKey(const char* name) : status_(windlass_add_label_key(name, &number_)) {}

  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] windlass_status status() const { return status_; }

 private:
  std::uint32_t number_ = UINT32_MAX;
  windlass_status status_;
};

// The calling thread has the label as long as the object lives. Then the thread gets back what it had. Objects of one
// thread end in the reverse order of their begin, and in the thread they began in. Copies `value`.
class ThreadLabel {
 public:
  ThreadLabel(const LabelKey& key, std::string_view value) : key_(key.number()) {
    (void)windlass_thread_label(key_, before_, sizeof before_);
    char text[WINDLASS_MAX_LABEL_VALUE + 1] = {};
    value.copy(text, WINDLASS_MAX_LABEL_VALUE);  // longer values lose their end
    status_ = windlass_set_thread_label(key_, text);
  }
  ~ThreadLabel() {
    if (status_ == WINDLASS_OK) (void)windlass_set_thread_label(key_, before_);
  }
  ThreadLabel(const ThreadLabel&) = delete;
  ThreadLabel& operator=(const ThreadLabel&) = delete;

  // WINDLASS_OK if the thread has the label.
  [[nodiscard]] windlass_status status() const { return status_; }

 private:
  std::uint32_t key_;
  windlass_status status_ = WINDLASS_OK;
  char before_[WINDLASS_MAX_LABEL_VALUE + 1] = {};
};

}  // namespace windlass
