#include "formats/go/names.h"

#include <algorithm>

namespace windlass::runtimes::go {
namespace {

// Numbers of the lists and of the data that a function may have (src/internal/abi/symtab.go), since Go 1.16.
constexpr std::uint32_t kInlinedAt = 2;   // PCDATA_InlTreeIndex
constexpr std::uint8_t kInlinedTree = 3;  // FUNCDATA_InlTree

// Of moduledata: where its gofunc is. Two words came before it in Go 1.20.
constexpr std::uint64_t data_word(TableForm form) { return form >= TableForm::k1_20 ? 40 : 38; }

}  // namespace

Names::Names(const CodeMap& map, const Program& program) : map_(map), program_(program) {
  const Table& table = map_.table();
  if (table.form < TableForm::k1_18) return;
  if (const auto module = program_.find_pointer(table.address))
    data_ = program_.pointer_at(*module + 8 * data_word(table.form)).value_or(0);
}

Expected<void> Names::at(std::uint64_t address, FunctionRef<void(const Place&)> place) const {
  const auto function = map_.function_at(address);
  if (!function) return Failure(function.error());
  const auto tree = tree_of(*function);
  const std::uint32_t inlined_at = tree ? map_.value_list(*function, kInlinedAt) : 0;
  const auto tell = [&](std::uint64_t at, std::string_view name, std::uint32_t begins_line) {
    const std::int32_t line = map_.value_at(*function, function->line, at);
    place({name, file_of(*function, at), static_cast<std::uint32_t>(std::max(line, 0)), begins_line});
  };
  std::uint64_t at = address;
  for (unsigned depth = 0; depth < kMostInlined && inlined_at != 0; ++depth) {
    const std::int32_t index = map_.value_at(*function, inlined_at, at);
    const auto call = index < 0 ? std::nullopt : inlined(*tree, index);
    if (!call || call->parent < 0 || !(function->begin + static_cast<std::uint64_t>(call->parent) < function->end))
      break;
    tell(at, map_.name(call->name), call->begins_line);
    at = function->begin + static_cast<std::uint64_t>(call->parent);
  }
  tell(at, map_.name(function->name), function->begins_line);
  return {};
}

std::optional<ByteView> Names::tree_of(const Function& function) const {
  const Table& table = map_.table();
  if (table.form == TableForm::k1_2 || function.data_count <= kInlinedTree) return std::nullopt;
  std::uint64_t at = function.value_lists + std::uint64_t{function.value_count} * 4;
  std::uint64_t address = 0;
  if (table.form >= TableForm::k1_18) {
    const auto offset = table.functions.at<std::uint32_t>(at + std::uint64_t{kInlinedTree} * 4);
    if (!offset || *offset == ~0u || data_ == 0) return std::nullopt;
    address = data_ + *offset;
  } else {
    at = (at + 7) / 8 * 8;
    address = table.functions.at<std::uint64_t>(at + std::uint64_t{kInlinedTree} * 8).value_or(0);
    if (address != 0) address -= table.base;
  }
  const auto tree = program_.from_address(address);
  return address != 0 && tree ? std::optional(*tree) : std::nullopt;
}

// runtime.inlinedCall
std::optional<Names::Inlined> Names::inlined(ByteView tree, std::int32_t index) const {
  const bool has_line = map_.table().form >= TableForm::k1_20;
  const std::uint64_t size = has_line ? 16 : 20;
  const auto entry = tree.sub(static_cast<std::uint64_t>(index) * size, size);
  if (!entry) return std::nullopt;
  if (has_line) return Inlined{*entry->at<std::int32_t>(4), *entry->at<std::int32_t>(8), *entry->at<std::uint32_t>(12)};
  return Inlined{*entry->at<std::int32_t>(12), *entry->at<std::int32_t>(16), 0};
}

std::string_view Names::file_of(const Function& function, std::uint64_t address) const {
  const std::int32_t number = map_.value_at(function, function.file, address);
  if (number < 0) return {};
  const Table& table = map_.table();
  const auto offset =
      table.units.at<std::uint32_t>((std::uint64_t{function.unit} + static_cast<std::uint32_t>(number)) * 4);
  return offset ? table.files.string_at(*offset).value_or("") : std::string_view();
}

}  // namespace windlass::runtimes::go
