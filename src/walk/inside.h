// What the library's own code sees of the public objects of walks.
#pragma once

#include <memory>

#include "windlass/target.h"
#include "windlass/walk.h"

namespace windlass::walk {

struct Inside {
  using Modules = AddressSpace::Modules;

  [[nodiscard]] static AddressSpace space(Architecture architecture, std::unique_ptr<Memory> memory,
                                          std::unique_ptr<Modules> modules);
  // As AddressSpace::module_at() has it, with the unwind information.
  [[nodiscard]] static const Module* module_at(const AddressSpace& space, std::uint64_t address);
  // Adds a module of a kind that AddressSpace::add_module() does not make. Errors as there.
  static Expected<void> add_module(AddressSpace& space, std::unique_ptr<Module> module);

  // Keeps a process's threads stopped; null for dumps.
  [[nodiscard]] static auto& live(auto& target) { return target.live_; }
  // Answers interpreted_functions(); null: there is no interpreter.
  [[nodiscard]] static auto& interpreted(auto& target) { return target.interpreted_; }
};

// The module or code range that contains `address`, or null.
[[nodiscard]] inline const Module* module_at(const AddressSpace& space, std::uint64_t address) {
  return Inside::module_at(space, address);
}

}  // namespace windlass::walk
