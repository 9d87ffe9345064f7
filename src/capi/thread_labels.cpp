// The record of a thread's labels (OTEP 4947), which profilers read while the thread stands still. So the order of
// writes matters to the compiler alone.
#include <atomic>
#include <cstddef>
#include <cstring>

#include "capi/label_keys.h"
#include "windlass/c/labels.h"

extern "C" void** windlass_thread_context(void);

namespace {

struct Record {
  std::uint8_t trace_id[16];
  std::uint8_t span_id[8];
  std::uint8_t valid;
  std::uint8_t trace_flags;
  std::uint16_t size;  // of attributes
  std::uint8_t attributes[WINDLASS_MAX_LABEL_BYTES];
};
static_assert(offsetof(Record, attributes) == 28 && sizeof(Record) == 640);

constinit thread_local Record t_record{};

void order() { std::atomic_signal_fence(std::memory_order_seq_cst); }

// The thread's record while it is changed: profilers ignore it, and a signal handler leaves it alone.
class Change {
 public:
  Change() : context_(windlass_thread_context()) {
    void* const now = *context_;
    if (now != nullptr && now != &t_record) {
      status_ = WINDLASS_UNSUPPORTED;
    } else if (now != nullptr && t_record.valid == 0) {
      status_ = WINDLASS_LIMIT;
    } else {
      *static_cast<void* volatile*>(context_) = &t_record;  // first: a handler that comes now takes it for a change
      *static_cast<volatile std::uint8_t*>(&t_record.valid) = 0;
      order();
    }
  }
  ~Change() {
    if (status_ != WINDLASS_OK) return;
    order();
    *static_cast<volatile std::uint8_t*>(&t_record.valid) = 1;
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  [[nodiscard]] windlass_status status() const { return status_; }

 private:
  void** context_;
  windlass_status status_ = WINDLASS_OK;
};

// Where the label is, or the end.
std::size_t find(std::uint32_t key) {
  const std::size_t end = t_record.size;
  for (std::size_t at = 0, size = 0; at + 2 <= end; at += size) {
    size = 2u + t_record.attributes[at + 1];
    if (t_record.attributes[at] == key && at + size <= end) return at;
  }
  return end;
}

windlass_status set(std::uint32_t key, const char* value, std::size_t size) {
  const std::size_t at = find(key);
  const std::size_t before = at < t_record.size ? 2u + t_record.attributes[at + 1] : 0;
  const std::size_t now = size != 0 ? 2 + size : 0, rest = t_record.size - before;
  if (rest + now > sizeof t_record.attributes) return WINDLASS_LIMIT;
  std::uint8_t* const place = t_record.attributes + at;
  if (now != before) std::memmove(place + now, place + before, rest - at);
  if (now != 0) {
    place[0] = static_cast<std::uint8_t>(key);
    place[1] = static_cast<std::uint8_t>(size);
    std::memcpy(place + 2, value, size);
  }
  t_record.size = static_cast<std::uint16_t>(rest + now);
  return WINDLASS_OK;
}

}  // namespace

extern "C" {

windlass_status windlass_add_label_key(const char* name, uint32_t* key) {
  if (name == nullptr || *name == 0 || key == nullptr) return WINDLASS_INVALID;
  return windlass::capi::add_label_key(name, *key);
}

windlass_status windlass_set_thread_label(uint32_t key, const char* value) {
  if (key >= windlass::capi::label_key_count()) return WINDLASS_INVALID;
  const std::size_t size = value != nullptr ? ::strnlen(value, WINDLASS_MAX_LABEL_VALUE + 1) : 0;
  if (size > WINDLASS_MAX_LABEL_VALUE) return WINDLASS_LIMIT;
  const Change change;
  return change.status() == WINDLASS_OK ? set(key, value, size) : change.status();
}

windlass_status windlass_thread_label(uint32_t key, char* value, size_t size) {
  if (key >= windlass::capi::label_key_count() || value == nullptr || size <= WINDLASS_MAX_LABEL_VALUE)
    return WINDLASS_INVALID;
  if (*windlass_thread_context() == &t_record && t_record.valid == 0)
    return WINDLASS_LIMIT;  // in the midst of a change
  const std::size_t at = find(key);
  const std::size_t length = at < t_record.size ? t_record.attributes[at + 1] : 0;
  if (length != 0) std::memcpy(value, t_record.attributes + at + 2, length);
  value[length] = 0;
  return WINDLASS_OK;
}

windlass_status windlass_set_thread_trace(const uint8_t trace_id[16], const uint8_t span_id[8]) {
  if ((trace_id == nullptr) != (span_id == nullptr)) return WINDLASS_INVALID;
  const Change change;
  if (change.status() != WINDLASS_OK) return change.status();
  static constexpr std::uint8_t kNone[16] = {};
  std::memcpy(t_record.trace_id, trace_id != nullptr ? trace_id : kNone, sizeof t_record.trace_id);
  std::memcpy(t_record.span_id, span_id != nullptr ? span_id : kNone, sizeof t_record.span_id);
  return WINDLASS_OK;
}

windlass_status windlass_clear_thread_labels(void) {
  const Change change;
  if (change.status() != WINDLASS_OK) return change.status();
  std::memset(t_record.trace_id, 0, sizeof t_record.trace_id + sizeof t_record.span_id);
  t_record.size = 0;
  return WINDLASS_OK;
}

}  // extern "C"
