#include "runtimes/mono/find.h"

#include <elf.h>

#include <utility>

#include "runtimes/dynamic_symbol.h"
#include "runtimes/laid_out_runtime.h"
#include "runtimes/memory_reader.h"
#include "runtimes/mono/code_map.h"
#include "runtimes/mono/layout.h"
#include "runtimes/mono/names.h"
#include "runtimes/mono/rows.h"

namespace windlass::runtimes::mono {
namespace {

Expected<Layout> read_layout(const Memory& memory, std::uint64_t image) {
  const auto header = read_value<Elf64_Ehdr>(memory, image);
  if (header && header->e_machine != EM_X86_64)
    return fail(ErrorCode::kUnsupported, "code of a Mono for another machine", image);
  return Layout::read(memory, image);
}

class Mono final : public LaidOutRuntime<Layout, CodeMap> {
 public:
  Mono(std::shared_ptr<const Memory> memory, std::uint64_t image)
      : LaidOutRuntime(std::move(memory), image, read_layout) {}

  Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    prepare();
    if (!tables_) return fail(ErrorCode::kNotFound, "nothing is known of the runtime's code", address);
    const auto block = tables_->map.find(*memory_, address);
    if (!block) return Failure(block.error());
    auto code = Code::read(*memory_, *block);
    if (!code) return Failure(code.error());
    (*code)->name = mono::name_of(*memory_, tables_->layout, *block);
    return std::move(*code);
  }

  bool is_still(const Method& method) override {
    return tables_ && tables_->map.is_still(*memory_, static_cast<const Code&>(method).block());
  }
};

}  // namespace

Expected<std::uint64_t> find_exports(const Memory& memory, std::uint64_t base) {
  return find_image_defining(memory, base, "mono_jit_info_get_code_start");
}

std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image) {
  return std::make_unique<Mono>(std::move(memory), image);
}

}  // namespace windlass::runtimes::mono
