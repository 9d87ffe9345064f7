#include "runtimes/sbcl/find.h"

#include <utility>

#include "runtimes/dynamic_symbol.h"
#include "runtimes/late_map.h"
#include "runtimes/sbcl/code_map.h"
#include "runtimes/sbcl/layout.h"
#include "runtimes/sbcl/names.h"
#include "runtimes/sbcl/rows.h"

namespace windlass::runtimes::sbcl {
namespace {

class Sbcl final : public Runtime {
 public:
  Sbcl(std::shared_ptr<const Memory> memory, std::uint64_t image) : memory_(std::move(memory)), image_(image) {
    prepare();
  }

  Architecture architecture() const override { return Architecture::kX86_64; }
  std::optional<Error> problem() const override { return tables_.problem(); }
  bool is_understood() const override { return !tables_.is_ready() || tables_; }

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

  bool is_starting() override {
    prepare();
    return !tables_.is_ready();
  }

  // The collector moves code, and frees it.
  bool is_still(const Method& method) override {
    return CodeMap::is_still(*memory_, static_cast<const Code&>(method).object());
  }

 private:
  void prepare() {
    tables_.prepare([&] { return Layout::read(*memory_, image_); });
  }

  std::shared_ptr<const Memory> memory_;
  std::uint64_t image_;
  LateMap<LaidOut<Layout, CodeMap>> tables_;
};

}  // namespace

Expected<std::uint64_t> find_exports(const Memory& memory, std::uint64_t base) {
  return find_image_defining(memory, base, "asm_routines_start");
}

std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image) {
  return std::make_unique<Sbcl>(std::move(memory), image);
}

}  // namespace windlass::runtimes::sbcl
