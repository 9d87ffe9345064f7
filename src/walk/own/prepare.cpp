// Tables made ahead of walks.
#include <iterator>
#include <mutex>

#include "base/mapped_file.h"
#include "lookup/sources/unwind_source.h"
#include "lookup/table/compile.h"
#include "walk/own/modules.h"
#include "walk/own/prepared_rules.h"
#include "walk/own/record.h"
#include "walk/own/rules.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

// Is the file still what was loaded?
bool is_file_of(const sources::UnwindSource& file, const walk::OwnModule& module) {
  std::string loaded;  // as build_id() spells it
  for (const std::uint8_t byte : walk::loaded_build_id(module.object())) {
    loaded += "0123456789abcdef"[byte >> 4];
    loaded += "0123456789abcdef"[byte & 15];
  }
  return !loaded.empty() && file.build_id().starts_with(loaded);
}

void compile(const walk::OwnModule& module) {
  const auto file = MappedFile::open(module.module().info().path);
  if (!file) return;  // the vdso; or deleted since
  const auto from = sources::open_source(file->bytes(), image::PeLayout::kFile);
  if (!from || !is_file_of(**from, module)) return;
  const auto ignore = [](const Error&) {};
  auto table = table::compile(**from, ignore);
  if (table && !table->empty()) module.publish(new walk::PreparedRules(std::move(*table), module.tag()));
}

// One walk of the kind that follows code, so that a signal handler's first does not wait for pages of code and tables,
// nor for the dynamic linker to bind functions.
[[gnu::noinline]] void walk_as_interrupted() {
  Registers here = capture_registers();
  here.set_pc(CodeAddress::instruction(here.pc().value()));
  std::uint64_t pcs[64];
  (void)backtrace_from(here, pcs, std::size(pcs));
}

}  // namespace

void prepare() {
  static std::mutex preparing;
  const std::lock_guard hold(preparing);
  (void)AddressSpace::self();  // enters and names all modules
  walk::OwnModules::for_each([](const walk::OwnModule& module) {
    if (module.prepared() == nullptr && module.tag() != walk::OwnModule::kUncacheable) compile(module);
  });
  walk::RuleCache::prepare();
  walk::WalkRecord::prepare();
  walk_as_interrupted();
}

}  // namespace windlass
