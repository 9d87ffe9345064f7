#include "runtimes/v8/wasm_names.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "runtimes/memory_reader.h"
#include "windlass/bytes.h"

namespace windlass::runtimes::v8 {
namespace {

constexpr std::uint64_t kMagic = 0x1'6d73'6100;  // "\0asm", version 1
constexpr std::uint64_t kLongest = std::uint64_t{1} << 30;
enum Section : std::uint8_t { kCustom = 0, kImports = 2, kExports = 7 };
enum Kind : std::uint8_t { kFunction = 0, kTable, kMemory, kGlobal, kTag };

Expected<std::string> text(ByteCursor& in) {
  const auto size = in.uleb();
  const auto bytes = size ? in.bytes(*size) : Failure(size.error());
  if (!bytes) return Failure(bytes.error());
  return std::string(reinterpret_cast<const char*>(bytes->data()), std::min(bytes->size(), WasmModule::kLongestName));
}

bool skip_number(ByteCursor& in) { return in.uleb().has_value(); }

bool skip_type(ByteCursor& in) {
  const auto type = in.read<std::uint8_t>();
  return type && ((*type != 0x63 && *type != 0x64) || in.sleb());  // a reference to a type of its own
}

bool skip_limits(ByteCursor& in) {
  const auto flags = in.read<std::uint8_t>();
  return flags && skip_number(in) && ((*flags & 1) == 0 || skip_number(in)) && ((*flags & 8) == 0 || skip_number(in));
}

bool skip_import(ByteCursor& in, std::uint8_t kind) {
  switch (kind) {
    case kFunction: return skip_number(in);
    case kTable: return skip_type(in) && skip_limits(in);
    case kMemory: return skip_limits(in);
    case kGlobal: return skip_type(in) && in.read<std::uint8_t>();
    case kTag: return in.read<std::uint8_t>() && skip_number(in);
    default: return false;
  }
}

}  // namespace

WasmModule WasmModule::read(const Memory& memory, std::uint64_t address, std::uint64_t size) {
  WasmModule found;
  std::uint64_t at = sizeof kMagic;
  for (unsigned sections = 0; sections < kMostSections && at < size; ++sections) {
    std::array<std::byte, 6> head{};  // a number and a length
    const std::size_t most = std::min<std::uint64_t>(head.size(), size - at);
    if (!memory.read(address + at, head.data(), most)) break;
    ByteCursor in({head.data(), most});
    const auto id = in.read<std::uint8_t>();
    const auto length = id ? in.uleb() : Failure(id.error());
    if (!length || *length > size - at - in.position()) break;
    at += in.position();
    if (*length <= kLongestSection && (*id == kCustom || *id == kImports || *id == kExports)) {
      std::vector<std::byte> bytes(*length);
      if (memory.read(address + at, bytes.data(), bytes.size())) found.add_section(*id, {bytes.data(), bytes.size()});
    }
    at += *length;
  }
  return found;
}

void WasmModule::add_section(std::uint8_t id, ByteView bytes) {
  ByteCursor in(bytes);
  if (id == kImports) return add_imports(in);
  if (id == kExports) return add_exports(in);
  if (const auto name = text(in); name && *name == "name") add_names(in);
}

void WasmModule::add_imports(ByteCursor in) {
  const auto count = in.uleb();
  for (std::uint64_t i = 0; count && i < *count; ++i) {
    if (!text(in) || !text(in)) return;
    const auto kind = in.read<std::uint8_t>();
    if (!kind || !skip_import(in, *kind)) return;
    if (*kind == kFunction) ++imported_;
  }
}

void WasmModule::add_exports(ByteCursor in) {
  const auto count = in.uleb();
  for (std::uint64_t i = 0; count && i < *count; ++i) {
    auto name = text(in);
    const auto kind = in.read<std::uint8_t>();
    const auto index = in.uleb();
    if (!name || !kind || !index) return;
    if (*kind == kFunction && *index < WasmMap::kMostFunctions)
      exports_.try_emplace(static_cast<std::uint32_t>(*index), std::move(*name));
  }
}

void WasmModule::add_names(ByteCursor in) {
  enum : std::uint8_t { kOfModule = 0, kOfFunctions = 1 };
  while (!in.at_end()) {
    const auto id = in.read<std::uint8_t>();
    const auto size = in.uleb();
    const auto bytes = size ? in.bytes(*size) : Failure(size.error());
    if (!id || !bytes) return;
    ByteCursor part(*bytes);
    if (*id == kOfModule) name_ = text(part).value_or("");
    if (*id != kOfFunctions) continue;
    const auto count = part.uleb();
    for (std::uint64_t i = 0; count && i < *count; ++i) {
      const auto index = part.uleb();
      auto name = text(part);
      if (!index || !name) break;
      if (*index < WasmMap::kMostFunctions) names_.try_emplace(static_cast<std::uint32_t>(*index), std::move(*name));
    }
  }
}

const std::string* WasmModule::name_of(std::uint32_t function) const {
  for (const auto* names : {&names_, &exports_})
    if (const auto found = names->find(function); found != names->end() && !found->second.empty())
      return &found->second;
  return nullptr;
}

// An address and a length, by which V8 keeps them.
WasmNames::Bytes WasmNames::bytes_at(std::uint64_t vector) const {
  const auto words = read_value<Bytes>(memory_, vector);
  if (!words || (*words)[1] < sizeof kMagic || (*words)[1] > kLongest ||
      read_value<std::uint64_t>(memory_, (*words)[0]) != kMagic)
    return {};
  return *words;
}

WasmNames::Bytes WasmNames::bytes_of(std::uint64_t module) {
  constexpr std::uint32_t kFarthest = 0x200;
  const auto at = [&](std::uint32_t offset) {
    const auto vector = read_value<std::uint64_t>(memory_, module + offset);
    return vector ? bytes_at(*vector) : Bytes();
  };
  for (std::uint32_t offset = 8; bytes_at_ == 0 && offset < kFarthest; offset += 8)
    if (at(offset)[1] != 0) bytes_at_ = offset;
  return bytes_at_ != 0 ? at(bytes_at_) : Bytes();
}

sources::NamedFunction WasmNames::name_of(const WasmObject& code) {
  const Bytes bytes = bytes_of(code.module);
  if (modules_.size() >= kMaxModules) modules_.clear();
  const auto [found, is_new] = modules_.try_emplace(bytes);
  WasmModule& module = found->second;
  if (is_new && bytes[1] != 0) module = WasmModule::read(memory_, bytes[0], bytes[1]);
  const auto index = static_cast<std::uint32_t>(code.index);
  if (index < module.imported_functions()) return {kToJavaScript};
  const std::string* name = module.name_of(index);
  return {name != nullptr ? *name : "wasm-function[" + std::to_string(index) + "]",
          module.name().empty() ? "wasm://wasm" : "wasm://wasm/" + module.name()};
}

}  // namespace windlass::runtimes::v8
