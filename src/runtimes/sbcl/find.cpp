#include "runtimes/sbcl/find.h"

#include <utility>

#include "runtimes/dynamic_symbol.h"
#include "runtimes/laid_out_runtime.h"
#include "runtimes/sbcl/code_map.h"
#include "runtimes/sbcl/layout.h"
#include "runtimes/sbcl/names.h"
#include "runtimes/sbcl/rows.h"

namespace windlass::runtimes::sbcl {
namespace {

class Sbcl final : public LaidOutRuntime<Layout, CodeMap> {
 public:
  Sbcl(std::shared_ptr<const Memory> memory, std::uint64_t image)
      : LaidOutRuntime(std::move(memory), image, Layout::read) {}

  Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    prepare();
    if (!tables_) return fail(ErrorCode::kNotFound, "nothing is known of the runtime's code", address);
    const auto function = tables_->map.find(*memory_, address);
    if (!function) return Failure(function.error());
    auto code = Code::read(*memory_, *function);
    if (!code) return Failure(code.error());
    (*code)->name = sbcl::name_of(*memory_, tables_->layout, *function);
    return std::move(*code);
  }

  bool is_starting() override { return is_not_ready(); }

  // The collector moves code, and frees it.
  bool is_still(const Method& method) override {
    return CodeMap::is_still(*memory_, static_cast<const Code&>(method).object());
  }
};

}  // namespace

Expected<std::uint64_t> find_exports(const Memory& memory, std::uint64_t base) {
  return find_image_defining(memory, base, "asm_routines_start");
}

std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image) {
  return std::make_unique<Sbcl>(std::move(memory), image);
}

}  // namespace windlass::runtimes::sbcl
