// .eh_frame and .eh_frame_hdr as bytes: LSB 5.0 sections 10.6.1 and 10.6.2.
#include <algorithm>
#include <cstring>
#include <limits>

#include "formats/dwarf/constants.h"
#include "formats/dwarf/encode.h"
#include "windlass/format/dwarf.h"

namespace windlass::dwarf {
namespace {

constexpr std::uint8_t kRelative = DW_EH_PE_pcrel | DW_EH_PE_sdata4;

template <typename T>
void put(std::vector<std::byte>& bytes, T value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof value);
}
void put(std::vector<std::byte>& bytes, const Block& block) {
  for (const std::uint8_t byte : block) bytes.push_back(static_cast<std::byte>(byte));
}
void put_text(std::vector<std::byte>& bytes, std::string_view text) {
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  bytes.push_back(std::byte{0});
}

bool reaches(std::int64_t distance) { return distance == static_cast<std::int32_t>(distance); }
constexpr const char* kTooFar = "four bytes do not reach that far; kAbsolute pointers do";

FrameFactors factors_of(const WriteOptions& options) {
  if (options.architecture != Architecture::kAArch64) return {1, -8};
  return options.factors == Factors::kLlvm ? FrameFactors{1, -4} : FrameFactors{4, -8};
}

// What instructions a CIE begins every function with.
Block entry_instructions(Architecture architecture, const FrameFactors& factors) {
  const FrameRow row = entry_row(architecture);
  Block block;
  put_instruction(block, {.kind = FrameInstruction::kDefCfa, .reg = row.cfa.reg(), .offset = row.cfa.offset()},
                  factors);
  const RegisterRule& pc = row.return_address;
  if (pc.is(RegisterRule::kAtCfa))
    put_instruction(
        block, {.kind = FrameInstruction::kOffset, .reg = return_column(architecture), .offset = pc.offset()}, factors);
  return block;
}

}  // namespace

Writer::Writer(const WriteOptions& options) : options_(options) { written_.address = options.address; }

// The length of a record, which does not count itself, once its end is known.
void Writer::pad(std::size_t record) {
  auto& bytes = written_.bytes;
  while (bytes.size() % 4 != 0) bytes.push_back(std::byte{DW_CFA_nop});
  const auto length = static_cast<std::uint32_t>(bytes.size() - record - 4);
  std::memcpy(bytes.data() + record, &length, sizeof length);
}

Expected<void> Writer::pointer(std::uint64_t target) {
  auto& bytes = written_.bytes;
  if (options_.pointers == Pointers::kAbsolute) {
    put(bytes, target);
    return {};
  }
  const auto distance = static_cast<std::int64_t>(target - (written_.address + bytes.size()));
  if (!reaches(distance)) return fail(ErrorCode::kOutOfRange, kTooFar, target, written_.address + bytes.size());
  put(bytes, static_cast<std::int32_t>(distance));
  return {};
}

Expected<std::uint32_t> Writer::common(const Common& wanted) {
  const auto [found, is_new] = commons_.try_emplace(wanted, static_cast<std::uint32_t>(written_.bytes.size()));
  if (!is_new) return found->second;
  auto& bytes = written_.bytes;
  const std::size_t record = bytes.size();
  const auto encoding = std::byte{options_.pointers == Pointers::kRelative ? kRelative : std::uint8_t{DW_EH_PE_absptr}};
  const std::uint8_t pointer_size = options_.pointers == Pointers::kRelative ? 4 : 8;
  put(bytes, std::uint32_t{0});  // its length
  put(bytes, std::uint32_t{0});  // a CIE
  put(bytes, std::uint8_t{1});
  std::string augmentation = "z";
  std::uint8_t data_size = 1;  // R
  if (wanted.personality != 0) augmentation += 'P', data_size = static_cast<std::uint8_t>(data_size + 1 + pointer_size);
  if (wanted.language_data) augmentation += 'L', ++data_size;
  augmentation += 'R';
  if (wanted.signal_frame) augmentation += 'S';
  if (options_.b_key && options_.architecture == Architecture::kAArch64) augmentation += 'B';
  put_text(bytes, augmentation);
  Block numbers;
  const FrameFactors factors = factors_of(options_);
  put_uleb(numbers, factors.code);
  put_sleb(numbers, factors.data);
  put_uleb(numbers, return_column(options_.architecture));
  put_uleb(numbers, data_size);
  put(bytes, numbers);
  if (wanted.personality != 0) {
    bytes.push_back(encoding);
    if (const auto ok = pointer(wanted.personality); !ok) return Failure(ok.error());
  }
  if (wanted.language_data) bytes.push_back(encoding);
  bytes.push_back(encoding);
  put(bytes, entry_instructions(options_.architecture, factors));
  pad(record);
  return static_cast<std::uint32_t>(record);
}

Expected<void> Writer::record(std::span<const FrameRow> rows, const Place& place) {
  const auto program = program_of(rows, options_.architecture);
  if (!program) return Failure(program.error());
  const auto cie = common({place.personality, place.language_data != 0, rows[0].signal_frame});
  if (!cie) return Failure(cie.error());
  auto& bytes = written_.bytes;
  const std::size_t record = bytes.size();
  const std::uint64_t size = rows.back().end - rows[0].begin;
  put(bytes, std::uint32_t{0});  // its length
  put(bytes, static_cast<std::uint32_t>(bytes.size() - *cie));
  if (const auto ok = pointer(place.address); !ok) return ok;
  options_.pointers == Pointers::kRelative ? put(bytes, static_cast<std::uint32_t>(size)) : put(bytes, size);
  const bool relative = options_.pointers == Pointers::kRelative;
  bytes.push_back(std::byte{static_cast<std::uint8_t>(place.language_data == 0 ? 0 : relative ? 4 : 8)});
  if (place.language_data != 0)
    if (const auto ok = pointer(place.language_data); !ok) return ok;
  const FrameFactors factors = factors_of(options_);
  Block block;
  std::uint32_t at = 0;
  for (const FrameInstruction& instruction : *program) {
    if (const auto ok = put_advance(block, instruction.at - at, factors, instruction.at); !ok) return ok;
    at = instruction.at;
    put_instruction(block, instruction, factors);
  }
  put(bytes, block);
  pad(record);
  written_.functions.push_back({place.address, static_cast<std::uint32_t>(record)});
  return {};
}

Expected<void> Writer::add(std::span<const FrameRow> rows, const Place& place) {
  if (options_.architecture != Architecture::kX86_64 && options_.architecture != Architecture::kAArch64)
    return fail(ErrorCode::kUnsupported, "no frames are written for this architecture", 0);
  constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::size_t before = written_.bytes.size();
  Expected<void> done = record(rows, place);
  if (done && written_.bytes.size() > kMost) {
    written_.functions.pop_back();
    done = fail(ErrorCode::kLimit, "2 GiB of unwind information", place.address, written_.bytes.size());
  }
  if (!done) {
    written_.bytes.resize(before);
    std::erase_if(commons_, [&](const auto& common) { return common.second >= before; });
  }
  return done;
}

Expected<void> Writer::add(const Prologue& prologue, const Place& place) {
  if (prologue.architecture != options_.architecture)
    return fail(ErrorCode::kUnsupported, "a function of another architecture", 0);
  if (prologue.handler && place.personality == 0)
    return fail(ErrorCode::kMalformed, "a handler needs the address of its personality routine", 0);
  const auto rows = rows_of(prologue);
  if (!rows) return Failure(rows.error());
  return add(*rows, place);
}

Written Writer::take() && {
  put(written_.bytes, std::uint32_t{0});
  return std::move(written_);
}

Expected<std::vector<std::byte>> eh_frame_hdr(const Written& written, std::uint64_t address) {
  struct Entry {
    std::int32_t function, fde;
  };
  constexpr std::uint8_t kVersion = 1;
  constexpr std::uint64_t kFrameField = 4;
  std::vector<Entry> table;
  for (const WrittenFunction& function : written.functions) {
    const auto to = static_cast<std::int64_t>(function.address - address);
    const auto fde = static_cast<std::int64_t>(written.address + function.fde - address);
    if (!reaches(to) || !reaches(fde))
      return fail(ErrorCode::kOutOfRange, "the table reaches no farther than 2 GiB", function.address, address);
    table.push_back({static_cast<std::int32_t>(to), static_cast<std::int32_t>(fde)});
  }
  const auto frame = static_cast<std::int64_t>(written.address - (address + kFrameField));
  if (!reaches(frame))
    return fail(ErrorCode::kOutOfRange, "the table reaches no farther than 2 GiB", written.address, address);
  std::stable_sort(table.begin(), table.end(), [](const Entry& a, const Entry& b) { return a.function < b.function; });
  std::vector<std::byte> bytes;
  for (const std::uint8_t byte :
       {kVersion, kRelative, std::uint8_t{DW_EH_PE_udata4}, std::uint8_t{DW_EH_PE_datarel | DW_EH_PE_sdata4}})
    put(bytes, byte);
  put(bytes, static_cast<std::int32_t>(frame));
  put(bytes, static_cast<std::uint32_t>(table.size()));
  for (const Entry& entry : table) put(bytes, entry);
  return bytes;
}

}  // namespace windlass::dwarf
