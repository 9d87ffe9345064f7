#include "aarch64/kernel_stack.h"

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "lookup/table/compile.h"

namespace windlass::aarch64_judge {
namespace {

constexpr std::uint64_t kPage = 0x1000;

}  // namespace

KernelStack::KernelStack(const StubClient& stub)
    : unwinder_([&stub](std::uint64_t address, void* to, std::size_t size) { return stub.read(address, to, size); }) {}

const KernelStack::File& KernelStack::file(const std::string& path) {
  const auto [place, is_new] = files_.try_emplace(path);
  File& file = place->second;
  if (!is_new) return file;
  const auto problem = [&](const Error& error) { problems_.push_back(path + ": " + error.text()); };
  const auto bytes = MappedFile::open(path);
  if (!bytes) return problem(bytes.error()), file;
  const auto elf = image::ElfImage::parse(bytes->bytes());
  if (!elf) return problem(elf.error()), file;
  const auto table = table::compile_elf(*elf, problem);
  if (!table) return problem(table.error()), file;
  const auto module = unwinder_.add_module(*table);
  if (!module) return problem(module.error()), file;
  file.module = *module;
  for (const image::ExecutableSegment& segment : elf->executable_segments())
    file.code.push_back(
        {segment.vaddr & ~(kPage - 1), (segment.vaddr + segment.memsz + kPage - 1) & ~(kPage - 1), 0, file.module, 0});
  return file;
}

void KernelStack::refresh(const GuestSpace& guest) {
  mapped_.clear();
  for (const GuestSpace::Mapped& module : guest.mapped())
    for (wl_mapping mapping : file(module.path).code) {
      mapping.begin += module.bias;
      mapping.end += module.bias;
      mapping.bias = module.bias;
      mapped_.push_back(mapping);
    }
  publish();
}

void KernelStack::add_generated(std::uint64_t address) {
  const std::uint64_t page = address & ~(kPage - 1);
  for (const wl_mapping& mapping : mapped_)
    if (address >= mapping.begin && address < mapping.end) return;
  if (generated_.try_emplace(page, wl_mapping{page, page + kPage, 0, 0, WL_MAPPING_GENERATED}).second) publish();
}

void KernelStack::publish() {
  std::vector<wl_mapping> all = mapped_;
  for (const auto& [page, mapping] : generated_) all.push_back(mapping);
  unwinder_.set_mappings(std::move(all));
}

KernelWalk KernelStack::walk(const CpuState& state, const std::vector<ShadowFrame>& truth, std::size_t trusted) {
  wl_cursor cursor = test::A64Unwinder::cursor(state.x, state.sp, state.pc);
  KernelWalk walk;
  walk.asked = true;
  for (std::size_t i = truth.size(); i-- > trusted;) {
    const ShadowFrame& frame = truth[i];
    walk.at = cursor.regs[WL_PC];
    walk.end = static_cast<std::uint8_t>(unwinder_.step(cursor));
    const bool bottom = frame.kind == ShadowFrame::kBottom;
    if (walk.end != WL_CONTINUE) {
      // Said to be the outermost frame, and is not: no reason for a short stack, but a wrong one.
      walk.wrong = walk.end == WL_END_COMPLETE && !bottom;
      return walk;
    }
    const bool sp_known = WL_VALID(&cursor, WL_SP) != 0;
    walk.wrong = bottom || cursor.regs[WL_PC] != frame.caller.pc || (sp_known && cursor.regs[WL_SP] != frame.caller.sp);
    if (walk.wrong) return walk;
    ++walk.frames;
  }
  walk.end = WL_CONTINUE;  // as far as the truth is known
  return walk;
}

}  // namespace windlass::aarch64_judge
