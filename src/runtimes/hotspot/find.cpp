#include "runtimes/hotspot/find.h"

#include <optional>
#include <utility>

#include "runtimes/dynamic_symbol.h"
#include "runtimes/hotspot/code_map.h"
#include "runtimes/hotspot/names.h"
#include "runtimes/hotspot/rows.h"
#include "runtimes/hotspot/vm_structs.h"
#include "runtimes/memory_reader.h"

namespace windlass::runtimes::hotspot {
namespace {

constexpr std::uint32_t kNullFreeSince = 20;  // JDK-8292758: see Compressed

// What cannot be read yet, since the process has just begun, is asked for again.
class HotSpot final : public Runtime {
 public:
  HotSpot(std::shared_ptr<const Memory> memory, std::uint64_t image) : memory_(std::move(memory)), image_(image) {
    prepare();
  }

  Architecture architecture() const override { return Architecture::kX86_64; }
  std::optional<Error> problem() const override { return problem_; }
  bool is_understood() const override { return !ready_ || code_map_; }

  Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    prepare();
    if (!code_map_) return fail(ErrorCode::kNotFound, "nothing is known of the runtime's code", address);
    auto blob = code_map_->find(*memory_, address);
    if (!blob) return std::unexpected(blob.error());
    auto code = Code::read(*memory_, std::move(*blob));
    if (!code) return std::unexpected(code.error());
    (*code)->name = name_of((*code)->blob());
    return std::move(*code);
  }

  bool is_still(const Method& method) override {
    return code_map_ && code_map_->is_still(*memory_, static_cast<const Code&>(method).blob());
  }

 private:
  [[nodiscard]] std::string name_of(const Blob& blob) {
    if (!blob.is_compiled()) return "[" + blob.name + "]";
    return names_ ? names_->method(*memory_, blob.method).name : std::string();
  }

  void prepare() {
    if (ready_) return;
    const auto structs = VmStructs::read(*memory_, image_);
    ready_ = structs || structs.error().code != ErrorCode::kUnreadable;
    if (!structs) {
      problem_ = structs.error();
      return;
    }
    problem_.reset();
    if (auto map = CodeMap::make(*structs))
      code_map_ = *map;
    else
      problem_ = map.error();
    const auto version = structs->address("Abstract_VM_Version", "_vm_major_version");
    const auto major = version ? read_value<std::uint32_t>(*memory_, *version) : std::nullopt;
    if (auto names = Names::make(*structs, major.value_or(0) >= kNullFreeSince))
      names_ = std::move(*names);
    else if (!problem_)
      problem_ = names.error();
  }

  std::shared_ptr<const Memory> memory_;
  std::uint64_t image_;
  bool ready_ = false;
  std::optional<CodeMap> code_map_;
  std::optional<Names> names_;
  std::optional<Error> problem_;
};

}  // namespace

Expected<std::uint64_t> find_tables(const Memory& memory, std::uint64_t base) {
  const auto found = find_dynamic_symbol(memory, base, "gHotSpotVMStructs");
  if (!found) return found;
  return base;
}

std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image) {
  return std::make_unique<HotSpot>(std::move(memory), image);
}

}  // namespace windlass::runtimes::hotspot
