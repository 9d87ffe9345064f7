// DWARF 4 sections 2, 6.2 and 7.
#include "jit/registries/debug_lines.h"

#include <cstring>
#include <map>

#include "formats/dwarf/encode.h"

namespace windlass::registries {
namespace {

enum : std::uint8_t {
  kTagCompileUnit = 0x11,
  kTagSubprogram = 0x2e,
  kName = 0x03,
  kStmtList = 0x10,
  kLowPc = 0x11,
  kHighPc = 0x12,
  kAddress = 0x01,  // forms
  kData4 = 0x06,
  kString = 0x08,
  kSecOffset = 0x17,
  kCopy = 1,  // DW_LNS_*
  kAdvancePc = 2,
  kAdvanceLine = 3,
  kSetFile = 4,
  kEndSequence = 1,  // DW_LNE_*
  kSetAddress = 2,
};

// A section while it is written.
class Bytes {
 public:
  template <typename T>
  void value(T number) {
    const auto* from = reinterpret_cast<const std::byte*>(&number);
    bytes.insert(bytes.end(), from, from + sizeof number);
  }
  void u8(unsigned number) { bytes.push_back(static_cast<std::byte>(number)); }
  void text(std::string_view text) {
    for (const char c : text) u8(static_cast<unsigned char>(c));
    u8(0);
  }
  void uleb(std::uint64_t number) {
    dwarf::Block block;
    dwarf::put_uleb(block, number);
    for (const std::uint8_t byte : block) u8(byte);
  }
  void sleb(std::int64_t number) {
    dwarf::Block block;
    dwarf::put_sleb(block, number);
    for (const std::uint8_t byte : block) u8(byte);
  }
  // A length that counts what comes behind it.
  [[nodiscard]] std::size_t open() {
    value(std::uint32_t{0});
    return bytes.size();
  }
  void close(std::size_t begin) {
    const auto length = static_cast<std::uint32_t>(bytes.size() - begin);
    std::memcpy(bytes.data() + begin - sizeof length, &length, sizeof length);
  }

  std::vector<std::byte> bytes;
};

void abbreviation(Bytes& to, unsigned number, unsigned tag, bool children, std::initializer_list<unsigned> attributes) {
  to.uleb(number);
  to.uleb(tag);
  to.u8(children ? 1 : 0);
  for (const unsigned attribute : attributes) to.uleb(attribute);
  to.u8(0);
  to.u8(0);
}

void put_info(Bytes& to, const Function& function, std::size_t lines) {
  const auto code = [&] {
    to.value(function.begin());
    to.value(static_cast<std::uint32_t>(function.given->size));
  };
  const std::size_t begin = to.open();
  to.value(std::uint16_t{4});
  to.value(std::uint32_t{0});  // abbreviations
  to.u8(8);                    // of an address
  to.uleb(1);
  to.text(function.given->lines.front().file);
  to.value(static_cast<std::uint32_t>(lines));
  code();
  to.uleb(2);
  to.text(function.given->name);
  code();
  to.u8(0);
  to.close(begin);
}

void put_header(Bytes& to, const std::map<std::string_view, unsigned>& files) {
  const std::size_t header = to.open();
  to.u8(1);                               // of an instruction
  to.u8(1);                               // operations
  to.u8(1);                               // default_is_stmt
  to.u8(static_cast<unsigned char>(-5));  // line_base
  to.u8(14);                              // line_range
  to.u8(10);                              // opcode_base
  for (const unsigned operands : {0, 1, 1, 1, 1, 0, 0, 0, 1}) to.u8(operands);
  to.u8(0);  // no folders
  std::vector<std::string_view> names(files.size());
  for (const auto& [name, number] : files) names[number - 1] = name;
  for (const std::string_view name : names) {
    to.text(name);
    for (int i = 0; i < 3; ++i) to.u8(0);
  }
  to.u8(0);
  to.close(header);
}

void put_lines(Bytes& to, const Function& function) {
  std::map<std::string_view, unsigned> files;
  for (const GeneratedLine& line : function.given->lines)
    files.try_emplace(line.file, static_cast<unsigned>(files.size() + 1));
  const std::size_t unit = to.open();
  to.value(std::uint16_t{4});
  put_header(to, files);
  to.u8(0);
  to.uleb(9);
  to.u8(kSetAddress);
  to.value(function.begin());
  std::uint32_t at = 0, file = 1;
  std::int64_t line = 1;
  for (const GeneratedLine& next : function.given->lines) {
    to.u8(kAdvancePc);
    to.uleb(next.offset - at);
    if (files[next.file] != file) {
      to.u8(kSetFile);
      to.uleb(file = files[next.file]);
    }
    to.u8(kAdvanceLine);
    to.sleb(next.line - line);
    to.u8(kCopy);
    at = next.offset;
    line = next.line;
  }
  to.u8(kAdvancePc);
  to.uleb(function.given->size - at);
  to.u8(0);
  to.uleb(1);
  to.u8(kEndSequence);
  to.close(unit);
}

}  // namespace

DebugLines debug_lines_of(std::span<const Function> functions) {
  Bytes abbreviations, info, lines;
  for (const Function& function : functions) {
    if (function.given->lines.empty()) continue;
    put_info(info, function, lines.bytes.size());
    put_lines(lines, function);
  }
  if (info.bytes.empty()) return {};
  abbreviation(abbreviations, 1, kTagCompileUnit, true,
               {kName, kString, kStmtList, kSecOffset, kLowPc, kAddress, kHighPc, kData4});
  abbreviation(abbreviations, 2, kTagSubprogram, false, {kName, kString, kLowPc, kAddress, kHighPc, kData4});
  abbreviations.u8(0);
  return {std::move(abbreviations.bytes), std::move(info.bytes), std::move(lines.bytes)};
}

}  // namespace windlass::registries
