#include "runtimes/beam/find.h"

#include <utility>

#include "runtimes/beam/code_map.h"
#include "runtimes/beam/layout.h"
#include "runtimes/beam/names.h"
#include "runtimes/beam/rows.h"
#include "runtimes/dynamic_symbol.h"
#include "runtimes/late_map.h"
#include "windlass_layout.h"

namespace windlass::runtimes::beam {
namespace {

class Beam final : public Runtime {
 public:
  Beam(std::shared_ptr<const Memory> memory, std::uint64_t image) : memory_(std::move(memory)), image_(image) {
    prepare();
  }

  Architecture architecture() const override { return Architecture::kX86_64; }
  std::optional<Error> problem() const override { return map_.problem(); }
  bool is_understood() const override { return !map_.is_ready() || map_; }

  Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    prepare();
    if (!map_) return fail(ErrorCode::kNotFound, "nothing is known of the virtual machine's code", address);
    if (address + 1 == map_.layout().normal_exit) return Code::end_of_process(map_.layout().normal_exit);
    const auto function = map_->find(*memory_, address);
    if (!function && function.error().code != ErrorCode::kNotFound) return Failure(function.error());
    auto code = function ? Code::read(*memory_, *function) : Code::read_shared(*memory_, address, *map_, map_.layout());
    if (!code) return Failure(code.error());
    if (function) (*code)->name = beam::name_of(*memory_, map_.layout(), *function);
    return std::move(*code);
  }

  // Code is loaded and purged at any time; what all share stays.
  bool is_still(const Method& method) override {
    const auto& code = static_cast<const Code&>(method);
    if (!map_ || code.is_shared()) return bool{map_};
    const auto now = map_->find(*memory_, code.begin);
    // Of a process that has ended, what was there last.
    return now ? *now == code.function() : now.error().code == ErrorCode::kUnreadable;
  }

  // [fs.base + kSelf], then the scheduler, its process, and that one's stack pointer.
  std::uint64_t way_to_stack() override {
    constexpr std::uint32_t kSelf = 0x10;
    prepare();
    if (!map_ || map_.layout().thread_scheduler == 0) return 0;
    return WL_WAY(kSelf, map_.layout().thread_scheduler / 8, Layout::kProcessStop / 8, Layout::kSchedulerProcess,
                  (Layout::kProcessEnd - Layout::kProcessStop) / 8);
  }
  bool is_starting() override {
    prepare();
    return !map_.is_ready();
  }

 private:
  void prepare() {
    map_.prepare([&] { return Layout::read(*memory_, image_); });
  }

  std::shared_ptr<const Memory> memory_;
  std::uint64_t image_;
  LateMap<Layout, CodeMap> map_;
};

}  // namespace

Expected<std::uint64_t> find_exports(const Memory& memory, std::uint64_t base) {
  return find_image_defining(memory, base, "etp_beamasm");
}

std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image) {
  return std::make_unique<Beam>(std::move(memory), image);
}

}  // namespace windlass::runtimes::beam
