// What a .NET module's metadata calls its types and methods, in the words of the runtime's own stack traces.
#pragma once

#include <cstdint>
#include <string>

#include "runtimes/coreclr/metadata_tables.h"

namespace windlass::runtimes::coreclr {

class Metadata {
 public:
  explicit Metadata(const MetadataTables& tables) : tables_(tables) {}

  // "Namespace.Outer.Inner" of a TypeDef; empty: there is none.
  [[nodiscard]] std::string type_name(const Memory& memory, std::uint32_t row) const;
  // "Namespace.Type.Name[T](Int32, String)" of a MethodDef in that type (0: the one that has it). Empty: there is no
  // such method.
  [[nodiscard]] std::string full_name(const Memory& memory, std::uint32_t row, std::uint32_t type) const;
  // "Name[T](Int32, String)" of a MethodDef, which the TypeDef `type` has (0: not known): what its parameters' types
  // are called. Empty: there is none.
  [[nodiscard]] std::string method_name(const Memory& memory, std::uint32_t row, std::uint32_t type) const;

 private:
  class Signature;
  static constexpr unsigned kMaxNesting = 16;
  static constexpr std::size_t kMaxGenerics = 64;

  [[nodiscard]] std::string simple_name(const Memory& memory, TableRow type) const;
  [[nodiscard]] std::string generic_name(const Memory& memory, TableRow owner, std::uint32_t number) const;
  [[nodiscard]] std::string generics(const Memory& memory, TableRow owner) const;

  MetadataTables tables_;
};

}  // namespace windlass::runtimes::coreclr
