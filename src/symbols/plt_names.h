// Linkage stubs: a stub jumps through a slot of the global offset table, and the relocation of that slot names the
// function.
#pragma once

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <memory>
#include <string>

namespace windlass::symbols {

class StubNames {
 public:
  // Finds the sections that stubs are in. The module must outlive it.
  explicit StubNames(Dwfl_Module* module);
  ~StubNames();
  StubNames(const StubNames&) = delete;
  StubNames& operator=(const StubNames&) = delete;

  // "name@plt" where the address lies in a linkage stub whose target is known, else empty. O(1), but for the first
  // stub, which reads all relocations.
  [[nodiscard]] std::string at(std::uint64_t address);

 private:
  struct Contents;
  std::unique_ptr<Contents> contents_;
};

}  // namespace windlass::symbols
