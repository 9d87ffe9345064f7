// The code of an address space: modules, code ranges and, for the own process, the modules loaded at the moment.
#pragma once

#include <memory>
#include <vector>

#include "walk/code_ranges.h"
#include "windlass/walk.h"

namespace windlass {

class AddressSpace::Modules {
 public:
  enum class Process : bool { kOther, kOwn };
  explicit Modules(Process process) : process_(process) {}

  Expected<void> insert(std::unique_ptr<walk::Module> module);
  // The module that begins there. kNotFound.
  Expected<void> erase(std::uint64_t begin);
  [[nodiscard]] Expected<CodeRangeId> add(CodeRange range, Architecture architecture);
  [[nodiscard]] walk::CodeRanges& code() { return code_; }
  [[nodiscard]] bool own_process() const { return process_ == Process::kOwn; }

  [[nodiscard]] const walk::Module* find(std::uint64_t address) const;
  [[nodiscard]] std::vector<const ModuleInfo*> infos() const;

 private:
  using Files = std::vector<std::unique_ptr<walk::Module>>;
  [[nodiscard]] Files::const_iterator first_behind(std::uint64_t address) const;
  [[nodiscard]] Expected<void> check_free(std::uint64_t begin, std::uint64_t end) const;

  Files files_;  // by begin, disjoint
  walk::CodeRanges code_;
  Process process_;
};

}  // namespace windlass
