#include "runtimes/beam/find.h"

#include <utility>

#include "runtimes/beam/code_map.h"
#include "runtimes/beam/layout.h"
#include "runtimes/beam/names.h"
#include "runtimes/beam/rows.h"
#include "runtimes/dynamic_symbol.h"
#include "runtimes/laid_out_runtime.h"
#include "windlass_process_layout.h"

namespace windlass::runtimes::beam {
namespace {

class Beam final : public LaidOutRuntime<Layout, CodeMap> {
 public:
  Beam(std::shared_ptr<const Memory> memory, std::uint64_t image)
      : LaidOutRuntime(std::move(memory), image, Layout::read) {}

  Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    prepare();
    if (!tables_) return fail(ErrorCode::kNotFound, "nothing is known of the virtual machine's code", address);
    if (address + 1 == tables_->layout.normal_exit) return Code::end_of_process(tables_->layout.normal_exit);
    const auto function = tables_->map.find(*memory_, address);
    if (!function && function.error().code != ErrorCode::kNotFound) return Failure(function.error());
    if (function) {
      auto code = Code::read(*memory_, *function);
      if (!code) return Failure(code.error());
      (*code)->name = beam::name_of(*memory_, tables_->layout, *function);
      if ((*code)->contains(address)) return std::move(*code);
    }
    auto shared = Code::read_shared(*memory_, address, tables_->map, tables_->layout, function.value_or(Function()));
    if (!shared) return Failure(shared.error());
    return std::move(*shared);
  }

  // Code is loaded and purged at any time; what all share stays.
  bool is_still(const Method& method) override {
    const auto& code = static_cast<const Code&>(method);
    if (!tables_ || code.is_shared()) return bool{tables_};
    const auto now = tables_->map.find(*memory_, code.begin);
    // Of a process that has ended, what was there last.
    return now ? *now == code.function() : now.error().code == ErrorCode::kUnreadable;
  }

  // [fs.base + kSelf], then the scheduler, its process, and that one's stack pointer.
  wl_way way_to_stack() override {
    constexpr std::int16_t kSelf = 0x10;
    prepare();
    if (!tables_ || tables_->layout.thread_scheduler == 0) return {};
    return {.first = kSelf,
            .second = static_cast<std::uint8_t>(tables_->layout.thread_scheduler / 8),
            .sp = Layout::kProcessStop / 8,
            .keeper = Layout::kSchedulerProcess / 8,
            .end = static_cast<std::uint8_t>((tables_->layout.process_end - Layout::kProcessStop) / 8),
            .there = 1};
  }
  bool is_starting() override { return is_not_ready(); }
};

}  // namespace

Expected<std::uint64_t> find_exports(const Memory& memory, std::uint64_t base) {
  const auto found = find_image_defining(memory, base, "etp_beamasm");
  // What it exports to loaded libraries, which do not define it, is left if no more is exported.
  return found ? found : find_image_defining(memory, base, "enif_system_info");
}

std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t image) {
  return std::make_unique<Beam>(std::move(memory), image);
}

}  // namespace windlass::runtimes::beam
