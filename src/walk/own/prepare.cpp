// Tables made ahead of walks.
#include <mutex>

#include "image/mapped_file.h"
#include "table/compile.h"
#include "walk/own/modules.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

// Is the file still what was loaded?
bool is_file_of(const image::ElfImage& image, const walk::OwnModule& module) {
  std::string loaded;  // as ElfImage spells it
  for (const std::uint8_t byte : walk::loaded_build_id(module.object())) {
    loaded += "0123456789abcdef"[byte >> 4];
    loaded += "0123456789abcdef"[byte & 15];
  }
  return !loaded.empty() && image.build_id().starts_with(loaded);
}

void compile(const walk::OwnModule& module) {
  const auto file = image::MappedFile::open(module.module().info().path);
  if (!file) return;  // the vdso; or deleted since
  const auto image = image::ElfImage::parse(file->bytes());
  if (!image || !is_file_of(*image, module)) return;
  const auto ignore = [](const Error&) {};
  auto table = table::compile_elf(*image, ignore);
  if (table && !table->empty()) module.publish(new table::UnwindTable(std::move(*table)));
}

}  // namespace

void prepare() {
  static std::mutex preparing;
  const std::lock_guard hold(preparing);
  (void)AddressSpace::self();  // enters and names all modules
  walk::OwnModules::for_each([](const walk::OwnModule& module) {
    if (module.table() == nullptr && module.tag() != walk::OwnModule::kUncacheable) compile(module);
  });
}

}  // namespace windlass
