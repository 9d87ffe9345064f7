// Which methods are inlined at an instruction of a compiled one.
//
// openjdk/jdk, src/hotspot/share/code: pcDesc.hpp, scopeDesc.cpp (ScopeDesc::decode_body), debugInfo.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtimes/hotspot/code_map.h"
#include "windlass/function_ref.h"
#include "windlass/walk.h"

namespace windlass::runtimes::hotspot {

struct Scope {
  std::uint64_t method = 0;  // Method
  std::int32_t bci = 0;      // -1: before its first bytecode
};

class DebugInfo {
 public:
  static constexpr unsigned kMostScopes = 256;

  // Copies the debug information of a method, without the parts that cannot be read.
  [[nodiscard]] static DebugInfo read(const Memory& memory, const Blob::Debug& from, bool null_free);

  // Appends the scopes at an offset from the code's first byte, innermost first, the method itself last. For a call,
  // give an offset inside of its instruction. The compilers describe calls, and places where a thread may be stopped.
  // Any other offset gets the scopes of the next such place. Nothing if there is none.
  void scopes_at(std::uint32_t offset, std::vector<Scope>& to) const;
  // The methods that are inlined anywhere, and the method itself; ascending.
  [[nodiscard]] std::vector<std::uint64_t> methods() const;
  [[nodiscard]] std::size_t bytes() const { return pcs_.size() + scopes_.size() + metadata_.size() * 8; }

 private:
  struct Place;
  [[nodiscard]] std::size_t places() const;
  [[nodiscard]] Place place(std::size_t index) const;
  // Calls visit(scope) for it and those it is inlined in, as long as it says so.
  void each_scope(std::uint32_t at, FunctionRef<bool(std::uint32_t at, const Scope& scope)> visit) const;

  std::vector<std::byte> pcs_, scopes_;
  std::vector<std::uint64_t> metadata_;
  bool null_free_ = false;
};

}  // namespace windlass::runtimes::hotspot
