// Where compiled tables go: the kernel side, or what stands for it in a test.
#pragma once

#include <cstdint>
#include <expected>

#include "profiler/doctor/system_error.h"

namespace windlass::table {
class UnwindTable;
}

namespace windlass::profiler {

// A module is the code of one file, loaded once however many processes map it. Thread-safe.
class TableStore {
 public:
  virtual ~TableStore() = default;
  // A new module, state WL_MODULE_PENDING: samples in it hand over their raw stack. Its number.
  virtual std::expected<std::uint32_t, SystemError> add_module() = 0;
  // Copies the table into the arena and makes the module READY. O(bytes of the table).
  virtual std::expected<void, SystemError> load_table(std::uint32_t module, const table::UnwindTable& table) = 0;
  // The file has no unwind information at all: frame-pointer rule.
  virtual void set_no_table(std::uint32_t module) = 0;
  // No published process may map it any more. Its number is used again after a grace period.
  virtual void remove_module(std::uint32_t module) = 0;
};

}  // namespace windlass::profiler
