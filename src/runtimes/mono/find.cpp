#include "runtimes/mono/find.h"

#include <elf.h>

#include <optional>
#include <utility>

#include "runtimes/dynamic_symbol.h"
#include "runtimes/memory_reader.h"
#include "runtimes/mono/code_map.h"
#include "runtimes/mono/layout.h"
#include "runtimes/mono/names.h"
#include "runtimes/mono/rows.h"

namespace windlass::runtimes::mono {
namespace {

// What cannot be read yet, since the process has just begun, is asked for again.
class Mono final : public Runtime {
 public:
  Mono(std::shared_ptr<const Memory> memory, std::uint64_t image) : memory_(std::move(memory)), image_(image) {
    prepare();
  }

  Architecture architecture() const override { return Architecture::kX86_64; }
  std::optional<Error> problem() const override { return problem_; }
  bool is_understood() const override { return !ready_ || map_; }

  Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    prepare();
    if (!map_) return fail(ErrorCode::kNotFound, "nothing is known of the runtime's code", address);
    const auto block = map_->find(*memory_, address);
    if (!block) return std::unexpected(block.error());
    auto code = Code::read(*memory_, *block);
    if (!code) return std::unexpected(code.error());
    (*code)->name = mono::name_of(*memory_, layout_, *block);
    return std::move(*code);
  }

  bool is_still(const Method& method) override {
    return map_ && map_->is_still(*memory_, static_cast<const Code&>(method).block());
  }

 private:
  void prepare() {
    if (ready_) return;
    const auto header = read_value<Elf64_Ehdr>(*memory_, image_);
    if (header && header->e_machine != EM_X86_64) {
      ready_ = true;
      problem_ = Error{ErrorCode::kUnsupported, "code of a Mono for another machine", image_};
      return;
    }
    const auto layout = Layout::read(*memory_, image_);
    ready_ = layout || layout.error().code != ErrorCode::kUnreadable;
    problem_.reset();
    if (layout) {
      layout_ = *layout;
      map_.emplace(layout_);
    } else {
      problem_ = layout.error();
    }
  }

  std::shared_ptr<const Memory> memory_;
  std::uint64_t image_;
  bool ready_ = false;
  Layout layout_;
  std::optional<CodeMap> map_;
  std::optional<Error> problem_;
};

}  // namespace

Expected<std::uint64_t> find_exports(const Memory& memory, std::uint64_t base) {
  const auto found = find_dynamic_symbol(memory, base, "mono_jit_info_get_code_start");
  if (!found) return found;
  return base;
}

std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image) {
  return std::make_unique<Mono>(std::move(memory), image);
}

}  // namespace windlass::runtimes::mono
