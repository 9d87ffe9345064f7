#include "runtimes/gdb/find.h"

#include <utility>

#include "runtimes/dynamic_symbol.h"
#include "runtimes/gdb/code_map.h"
#include "runtimes/gdb/rows.h"
#include "windlass/backtrace.h"

namespace windlass::runtimes::gdb {
namespace {

class Gdb final : public Runtime {
 public:
  Gdb(std::shared_ptr<const Memory> memory, std::uint64_t descriptor) : memory_(std::move(memory)), map_(descriptor) {}

  Architecture architecture() const override { return kOwnArchitecture; }
  // Many export the descriptor who never use it.
  bool is_understood() const override { return map_.has_entries(*memory_); }
  bool is_starting() override {
    if (looks_ >= kMostLooks) return false;
    ++looks_;
    return !map_.has_entries(*memory_);
  }
  // Compilers' call frame information need not hold in epilogues.
  bool is_exact() const override { return false; }

  Expected<std::unique_ptr<Method>> method_at(std::uint64_t address) override {
    auto found = map_.find(*memory_, address);
    if (!found) return Failure(found.error());
    const auto function = found->object->function_at(address);
    if (!function) return fail(ErrorCode::kNotFound, "nothing is said of the code", address);
    return std::make_unique<Code>(std::move(*found), *function);
  }
  bool is_still(const Method& method) override {
    return map_.is_still(*memory_, static_cast<const Code&>(method).entry());
  }

 private:
  static constexpr unsigned kMostLooks = 200;  // as long as it may take from the first code to its registration

  std::shared_ptr<const Memory> memory_;
  CodeMap map_;
  unsigned looks_ = 0;
};

}  // namespace

Expected<std::uint64_t> find_descriptor(const Memory& memory, std::uint64_t base) {
  return find_dynamic_symbol(memory, base, "__jit_debug_descriptor");
}

std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t descriptor) {
  return std::make_unique<Gdb>(std::move(memory), descriptor);
}

}  // namespace windlass::runtimes::gdb
