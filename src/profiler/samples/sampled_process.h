// A process that samples come from, as a walker wants it: its mappings as the modules of an address space.
#pragma once

#include <vector>

#include "profiler/processes/module_registry.h"
#include "profiler/processes/process_table.h"
#include "walk/code_memo.h"
#include "walk/inside.h"
#include "walk/space_modules.h"
#include "windlass/walk.h"

namespace windlass::profiler {

// Keeps its modules, and with them what walkers remember about them, as long as their mappings stay. Valid until the
// registry evicts a file.
class SampledProcess {
 public:
  // The memory is the caller's, and must outlive it; so is the memo, for what its code comes to.
  SampledProcess(std::uint32_t tgid, Architecture architecture, const Memory& memory, std::uint64_t code_mask,
                 walk::CodeMemo& memo);

  // Makes the modules those of `maps`, the functions of code managers those of a time. Linear in the mappings;
  // allocates for those that are new.
  void show(const MapSet& maps, std::uint64_t time, ModuleRegistry& registry);
  // Makes an address that no mapping has one of generated code, until show() or cover() is called for another; 0: none.
  void cover(std::uint64_t address);
  [[nodiscard]] const AddressSpace& space() const { return space_; }

 private:
  using Modules = walk::Inside::Modules;
  SampledProcess(std::uint32_t tgid, Architecture architecture, const Memory& memory, std::uint64_t code_mask,
                 walk::CodeMemo& memo, std::unique_ptr<Modules> modules);
  [[nodiscard]] walk::KeptCode kept_code(const Mapping& mapping) const;

  std::uint32_t tgid_;
  walk::CodeMemo& memo_;
  Modules* modules_;  // of the space
  AddressSpace space_;
  std::vector<Mapping> shown_;
  std::uint64_t covered_ = 0;  // cover()
};

}  // namespace windlass::profiler
