// The frames of code that is registered with GDB: rows by the call frame information of its object.
#pragma once

#include "runtimes/gdb/code_map.h"
#include "runtimes/runtime_code.h"

namespace windlass::runtimes::gdb {

class Code final : public Method {
 public:
  Code(Registered registered, const Object::Function& function);

  [[nodiscard]] const Entry& entry() const { return registered_.entry; }
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    return registered_.object->source().row_at(address, to);
  }
  void for_each_row(sources::RowSink row, sources::ErrorSink report) const override;
  std::size_t bytes() const override { return sizeof *this + name.size(); }

 private:
  Registered registered_;
};

}  // namespace windlass::runtimes::gdb
