// The full rows of a module.
#include "agent/module_registry.h"
#include "arch/registers.h"
#include "source/row_finder.h"
#include "winx64/lower.h"
#include "winx64/registers.h"

namespace windlass::agent {
namespace {

// Code of Windows without an entry is a leaf function: it moves neither rsp nor a preserved register.
void leaf_row(std::uint64_t address, FrameRow& row) {
  row = FrameRow();
  row.begin = address;
  row.end = address + 1;
  row.cfa = CfaRule::at(x86_64::kRsp, 8);
  row.return_address = RegisterRule::at_cfa(-8);
  for (const unsigned number : {6u, 7u})
    (void)row.registers.set(winx64::dwarf_number(number), RegisterRule::same_value());
}

}  // namespace

Expected<void> ModuleRegistry::row_at(CodeFile& file, std::uint64_t address, FrameRow& to) {
  const auto none = [&] { return fail(ErrorCode::kNotFound, "no unwind information", address); };
  if (file.pe) {
    const auto rva = static_cast<std::uint32_t>(address);
    const image::PeSection* section = rva == address ? file.pe->section_at(rva) : nullptr;
    if (section == nullptr || !section->executable() || !file.pe->is_x64_format()) return none();
    if (!file.functions) file.functions = std::make_unique<winx64::Functions>(*file.pe);
    if (const auto entry = file.functions->find(rva)) return winx64::row_at(*file.functions, *entry, rva, to);
    leaf_row(address, to);
    return {};
  }
  if (!file.rows_tried && file.image) {
    file.rows_tried = true;
    file.rows = source::RowFinder::make(*file.image);
  }
  if (file.rows == nullptr) return none();
  return file.rows->find(address, to);
}

}  // namespace windlass::agent
