// The modules of a program under qemu-aarch64, as an address space.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "aarch64/stub_client.h"
#include "windlass/walk.h"

namespace windlass::aarch64_judge {

class GuestSpace {
 public:
  explicit GuestSpace(const StubClient& stub);

  [[nodiscard]] const AddressSpace& space() const { return space_; }
  // Reads qemu's mappings; modules that are there already keep what they have read. True if one came or went.
  bool refresh();
  struct Mapped {
    std::uint64_t bias;
    std::string path;
  };
  [[nodiscard]] std::vector<Mapped> mapped() const;
  // "file+0xaddress", by the file's own addresses.
  [[nodiscard]] std::string name(std::uint64_t address) const;

 private:
  const StubClient& stub_;
  AddressSpace space_;
  std::map<std::uint64_t, std::string> known_;
};

}  // namespace windlass::aarch64_judge
