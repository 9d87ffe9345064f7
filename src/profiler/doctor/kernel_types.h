// The kernel's type information (BTF), as far as the BPF programs need it. libbpf takes 10 ms to read all of it, and as
// long to look for the programs' structs in it. So it is given a small copy with these structs alone.
//
// The format: Documentation/bpf/btf.rst of Linux.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapped_file.h"

namespace windlass::profiler {

inline constexpr const char* kKernelTypes = "/sys/kernel/btf/vmlinux";

class KernelTypes {
 public:
  // Nothing where the file cannot be read.
  static std::optional<KernelTypes> read(const std::string& path = kKernelTypes);
  explicit KernelTypes(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  explicit KernelTypes(MappedFile mapped) : mapped_(std::move(mapped)) {}

  [[nodiscard]] std::span<const std::byte> bytes() const {
    if (!bytes_.empty()) return bytes_;
    return {mapped_.bytes().data(), mapped_.bytes().size()};
  }
  // The number of a function; 0: it is not there, or the information is malformed.
  [[nodiscard]] std::uint32_t function(std::string_view name) const;
  // The structs and unions of these names, with all that lies in them. Pointers lead nowhere. Nothing where the
  // information is malformed.
  [[nodiscard]] std::optional<std::vector<std::byte>> only(const std::set<std::string, std::less<>>& names) const;

 private:
  MappedFile mapped_;
  std::vector<std::byte> bytes_;
};

}  // namespace windlass::profiler
