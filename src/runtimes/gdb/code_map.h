// The code that a process has registered with GDB: the list of its objects, and which of them an address is in.
//
// GDB manual, "JIT Compilation Interface": __jit_debug_descriptor, jit_code_entry.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "runtimes/gdb/object.h"
#include "windlass/walk.h"

namespace windlass::runtimes::gdb {

// jit_code_entry, and where it is.
struct Entry {
  std::uint64_t address = 0;
  std::uint64_t next = 0, previous = 0, file = 0, size = 0;
  // `other`: what has been at this address.
  [[nodiscard]] bool is_still(const Entry& other) const { return file == other.file && size == other.size; }
};

struct Registered {
  Entry entry;
  std::shared_ptr<const Object> object;  // null: it cannot be understood
};

class CodeMap {
 public:
  static constexpr std::size_t kMaxEntries = 65536;
  static constexpr std::size_t kMaxBytes = std::size_t{256}
                                           << 20;  // of all objects; those that come later are left out

  explicit CodeMap(std::uint64_t descriptor) : descriptor_(descriptor) {}

  // Is anything registered?
  [[nodiscard]] bool has_entries(const Memory& memory) const { return first(memory) != 0; }
  // Looks through the list where no object that is known has the address: linear in it then, else logarithmic.
  // kNotFound: none has it.
  [[nodiscard]] Expected<Registered> find(const Memory& memory, std::uint64_t address);
  // Has it stayed in the list? Constant.
  [[nodiscard]] bool is_still(const Memory& memory, const Entry& entry) const;

 private:
  [[nodiscard]] std::uint64_t first(const Memory& memory) const;
  void read_list(const Memory& memory);
  [[nodiscard]] const Registered* known_at(std::uint64_t address) const;

  std::uint64_t descriptor_;
  std::map<std::uint64_t, Registered> entries_;     // by their addresses
  std::map<std::uint64_t, std::uint64_t> by_code_;  // ends of code to their entries
};

}  // namespace windlass::runtimes::gdb
