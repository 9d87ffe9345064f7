// The own process as an address space.
#include <link.h>
#include <unistd.h>

#include <cstring>

#include "walk/module.h"
#include "windlass/backtrace.h"

namespace windlass {
namespace {

class OwnMemory final : public Memory {
 public:
  [[nodiscard]] bool read(std::uint64_t address, void* to, std::size_t size) const override {
    std::memcpy(to, reinterpret_cast<const void*>(address), size);
    return true;
  }
};

int add_loaded(dl_phdr_info* info, std::size_t, void* context) {
  std::uint64_t begin = ~std::uint64_t{0};
  std::uint64_t end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    begin = std::min<std::uint64_t>(begin, segment.p_vaddr);
    end = std::max<std::uint64_t>(end, segment.p_vaddr + segment.p_memsz);
  }
  ModuleInfo module{info->dlpi_addr + begin, info->dlpi_addr + end, info->dlpi_addr, info->dlpi_name, {}};
  if (module.path.empty()) module.path = "/proc/self/exe";
  (void)static_cast<AddressSpace*>(context)->add_module(std::move(module));
  return 0;
}

}  // namespace

AddressSpace AddressSpace::self() {
  AddressSpace space(kOwnArchitecture, std::make_unique<OwnMemory>());
  dl_iterate_phdr(add_loaded, &space);
  return space;
}

const AddressSpace& own_process() {
  static const AddressSpace space = AddressSpace::self();
  return space;
}

std::size_t backtrace_from(const Registers& registers, std::uint64_t* pcs, std::size_t max, WalkEnd* end) {
  if (max == 0) return 0;
  StackWalker walker(own_process(), registers, WalkOptions{max});
  std::size_t depth = 0;
  do pcs[depth++] = walker.frame().pc().value();
  while (depth < max && walker.step());
  if (end != nullptr) *end = walker.end_reason();
  return depth;
}

[[gnu::noinline]] std::size_t backtrace(std::uint64_t* pcs, std::size_t max, unsigned skip) {
  StackWalker walker(own_process(), capture_registers());
  for (unsigned i = 0; i <= skip; ++i)
    if (!walker.step()) return 0;
  return backtrace_from(walker.frame().registers, pcs, max);
}

Expected<OwnFunction> own_function(std::uint64_t pc) {
  return fail(ErrorCode::kNotFound, "no unwind information covers the address", pc);
}

void prepare() {}

}  // namespace windlass
