// The entries for variables in a file's debug information, by name.
#pragma once

#include <elfutils/libdw.h>
#include <fcntl.h>
#include <unistd.h>

#include <map>
#include <string>

#include <dwarf.h>

namespace windlass::test {

class DebugInformation {
 public:
  explicit DebugInformation(const char* path) : file_(::open(path, O_RDONLY | O_CLOEXEC)) {
    dwarf_ = dwarf_begin(file_, DWARF_C_READ);
    if (dwarf_ == nullptr) return;
    Dwarf_CU* unit = nullptr;
    Dwarf_Die top;
    while (dwarf_get_units(dwarf_, unit, &unit, nullptr, nullptr, &top, nullptr) == 0) {
      Dwarf_Die child;
      if (dwarf_child(&top, &child) != 0) continue;
      do {
        if (dwarf_tag(&child) == DW_TAG_variable && dwarf_diename(&child) != nullptr)
          variables_.emplace(dwarf_diename(&child), child);
      } while (dwarf_siblingof(&child, &child) == 0);
    }
  }
  DebugInformation(const DebugInformation&) = delete;
  DebugInformation& operator=(const DebugInformation&) = delete;
  ~DebugInformation() {
    dwarf_end(dwarf_);
    ::close(file_);
  }
  [[nodiscard]] std::map<std::string, Dwarf_Die>& variables() { return variables_; }

 private:
  int file_;
  Dwarf* dwarf_ = nullptr;
  std::map<std::string, Dwarf_Die> variables_;
};

}  // namespace windlass::test
