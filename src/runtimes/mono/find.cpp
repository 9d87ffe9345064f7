#include "runtimes/mono/find.h"

#include <elf.h>

#include <utility>

#include "runtimes/dynamic_symbol.h"
#include "runtimes/late_map.h"
#include "runtimes/memory_reader.h"
#include "runtimes/mono/code_map.h"
#include "runtimes/mono/layout.h"
#include "runtimes/mono/names.h"
#include "runtimes/mono/rows.h"

namespace windlass::runtimes::mono {
namespace {

class Mono final : public Runtime {
 public:
  Mono(std::shared_ptr<const Memory> memory, std::uint64_t image) : memory_(std::move(memory)), image_(image) {
    prepare();
  }

  Architecture architecture() const override { return Architecture::kX86_64; }
  std::optional<Error> problem() const override { return map_.problem(); }
  bool is_understood() const override { return !map_.is_ready() || map_; }

  Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    prepare();
    if (!map_) return fail(ErrorCode::kNotFound, "nothing is known of the runtime's code", address);
    const auto block = map_->find(*memory_, address);
    if (!block) return Failure(block.error());
    auto code = Code::read(*memory_, *block);
    if (!code) return Failure(code.error());
    (*code)->name = mono::name_of(*memory_, map_.layout(), *block);
    return std::move(*code);
  }

  bool is_still(const Method& method) override {
    return map_ && map_->is_still(*memory_, static_cast<const Code&>(method).block());
  }

 private:
  void prepare() {
    map_.prepare([&]() -> Expected<Layout> {
      const auto header = read_value<Elf64_Ehdr>(*memory_, image_);
      if (header && header->e_machine != EM_X86_64)
        return fail(ErrorCode::kUnsupported, "code of a Mono for another machine", image_);
      return Layout::read(*memory_, image_);
    });
  }

  std::shared_ptr<const Memory> memory_;
  std::uint64_t image_;
  LateMap<Layout, CodeMap> map_;
};

}  // namespace

Expected<std::uint64_t> find_exports(const Memory& memory, std::uint64_t base) {
  return find_image_defining(memory, base, "mono_jit_info_get_code_start");
}

std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image) {
  return std::make_unique<Mono>(std::move(memory), image);
}

}  // namespace windlass::runtimes::mono
