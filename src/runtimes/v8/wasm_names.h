// What the functions of WebAssembly modules are called: by the modules' own bytes, which V8 keeps.
//
// WebAssembly core specification, 5.5 (binary format of modules) and 7.4.1 (name section).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "lookup/sources/name_source.h"
#include "runtimes/v8/wasm_map.h"
#include "windlass/error.h"
#include "windlass/walk.h"

namespace windlass::runtimes::v8 {

class WasmModule {
 public:
  static constexpr std::uint64_t kLongestSection = std::uint64_t{32} << 20;  // others are left out
  static constexpr unsigned kMostSections = 4096;
  static constexpr std::size_t kLongestName = 1024;

  // What can be read of it; nothing is refused.
  [[nodiscard]] static WasmModule read(const Memory& memory, std::uint64_t address, std::uint64_t size);

  // By the name section, else by what it is exported as; null: neither has it.
  [[nodiscard]] const std::string* name_of(std::uint32_t function) const;
  [[nodiscard]] const std::string& name() const { return name_; }               // empty: it has none
  [[nodiscard]] std::uint32_t imported_functions() const { return imported_; }  // whose numbers come first

 private:
  void add_section(std::uint8_t id, ByteView bytes);
  void add_imports(ByteCursor in);
  void add_exports(ByteCursor in);
  void add_names(ByteCursor in);

  std::map<std::uint32_t, std::string> names_, exports_;
  std::string name_;
  std::uint32_t imported_ = 0;
};

// Of a process. Bound: kMaxModules, then all are forgotten.
class WasmNames {
 public:
  static constexpr std::size_t kMaxModules = 256;

  explicit WasmNames(const Memory& memory) : memory_(memory) {}
  // Of a module's function.
  [[nodiscard]] sources::NamedFunction name_of(const WasmObject& code);

 private:
  using Bytes = std::array<std::uint64_t, 2>;  // address, size
  [[nodiscard]] Bytes bytes_at(std::uint64_t vector) const;
  [[nodiscard]] Bytes bytes_of(std::uint64_t module);

  const Memory& memory_;
  std::uint32_t bytes_at_ = 0;  // in a NativeModule, where the pointer to them is; 0: not known yet
  std::map<Bytes, WasmModule> modules_;
};

}  // namespace windlass::runtimes::v8
