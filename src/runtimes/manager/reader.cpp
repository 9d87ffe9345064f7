#include <type_traits>

#include "runtimes/manager/read.h"

namespace windlass {
namespace {

using namespace manager;

// RegisterRule and CfaRule are what the layout says of them.
constexpr auto kAtRegister = std::bit_cast<wl_code_value>(RegisterRule::at_register(3, -8));
static_assert(kAtRegister.value == -8 && kAtRegister.reg == 3 && kAtRegister.kind == RegisterRule::kAtRegister &&
              kAtRegister.size == 0);
constexpr auto kLoaded = std::bit_cast<wl_code_value>(CfaRule::loaded(6, -16, 8));
static_assert(kLoaded.value == -16 && kLoaded.size == 8 && kLoaded.reg == 6 && kLoaded.kind == CfaRule::kLoaded);

Failure bad_header(const char* what, std::uint64_t where, std::uint64_t detail = 0) {
  return fail(ErrorCode::kMalformed, what, where, detail);
}

struct Section {
  std::uint64_t begin;
  std::uint64_t size;
  std::uint64_t alignment;
};

Expected<TableHeader> check_header(const wl_code_header& header) {
  if (header.magic != WL_CODE_MAGIC) return bad_header("no code manager's table", 0, header.magic);
  if (header.version != WL_CODE_VERSION)
    return fail(ErrorCode::kUnsupported, "code manager's table of another version", offsetof(wl_code_header, version),
                header.version);
  if (header.machine > WL_MACHINE_AARCH64)
    return fail(ErrorCode::kUnsupported, "code manager's table of another machine", offsetof(wl_code_header, machine),
                header.machine);
  if (!wl_code_has_range(&header))
    return bad_header("code manager's table is not for its range of code", offsetof(wl_code_header, begin),
                      header.end - header.begin);
  const Section sections[] = {{header.blocks, header.block_count * std::uint64_t{sizeof(wl_code_block)}, 8},
                              {header.records, header.record_count * std::uint64_t{sizeof(wl_code_record)}, 8},
                              {header.name_of, header.record_count * std::uint64_t{sizeof(std::uint32_t)}, 4},
                              {header.shapes, header.shape_bytes, 4},
                              {header.names, header.name_bytes, 4},
                              {header.past, header.past_count * std::uint64_t{sizeof(wl_code_past)}, 8}};
  for (const Section& section : sections)
    if (!wl_code_has_section(&header, section.begin, section.size, section.alignment))
      return bad_header("section of a code manager's table does not lie in it", section.begin, section.size);
  return TableHeader{header.begin,
                     header.end,
                     header.size,
                     header.blocks,
                     header.records,
                     header.name_of,
                     header.shapes,
                     header.names,
                     header.past,
                     header.block_count,
                     header.record_count,
                     header.shape_bytes,
                     header.name_bytes,
                     header.past_count,
                     header.machine == WL_MACHINE_X86_64 ? Architecture::kX86_64 : Architecture::kAArch64};
}

// ---- a row with all registers -------------------------------------------------------------------------------------

constexpr std::uint16_t kFlags = WL_CODE_SIGNAL_FRAME | WL_CODE_RETURN_SIGNED;

bool is_cfa(const wl_code_value& value) { return value.kind <= CfaRule::kExpression; }
bool is_rule(const wl_code_value& value) { return value.kind <= RegisterRule::kExpressionValue; }

// All of it but begin and end.
template <typename Bytes>
Looked read_row(const Bytes& bytes, const TableHeader& table, std::uint64_t at, FrameRow& to,
                std::span<std::byte> expressions) {
  wl_code_full full;
  if (!bytes.read(at, full)) return Looked::kUnreadable;
  if (!is_cfa(full.cfa) || !is_rule(full.return_address) || full.register_count > RegisterRules::kCapacity ||
      (full.flags & ~kFlags) != 0)
    return Looked::kBadRow;
  to.cfa = std::bit_cast<CfaRule>(full.cfa);
  to.return_address = std::bit_cast<RegisterRule>(full.return_address);
  to.signal_frame = (full.flags & WL_CODE_SIGNAL_FRAME) != 0;
  to.return_signed = (full.flags & WL_CODE_RETURN_SIGNED) != 0;
  to.registers.clear();
  at += sizeof full;
  std::uint32_t least = 0;
  for (unsigned i = 0; i < full.register_count; ++i, at += sizeof(wl_code_register)) {
    wl_code_register entry;
    if (!bytes.read(at, entry)) return Looked::kUnreadable;
    if (entry.reg < least || entry.reg > kMaxRowRegister || !is_rule(entry.rule)) return Looked::kBadRow;
    to.registers.append(static_cast<RegisterNumber>(entry.reg), std::bit_cast<RegisterRule>(entry.rule));
    least = entry.reg + 1;
  }
  to.expressions = ByteView();
  const std::uint32_t size = full.expression_bytes;
  if (size == 0) return Looked::kFound;
  if (at > table.size || size > table.size - at) return Looked::kBadPlace;
  const std::byte* view = bytes.view(at);
  if (expressions.empty() && view != nullptr) {
    to.expressions = ByteView(view, size);
    return Looked::kFound;
  }
  const std::size_t padded = (std::size_t{size} + 3) & ~std::size_t{3};
  if (padded > expressions.size()) return Looked::kNoRoom;
  if (!bytes.read(at, expressions.data(), padded)) return Looked::kUnreadable;
  to.expressions = ByteView(expressions.data(), size);
  return Looked::kFound;
}

constexpr std::uint64_t kNow = ~std::uint64_t{0};

// What was taken away after a moment, and had the address then.
template <typename Bytes>
Looked look_up_past(const Bytes& bytes, const TableHeader& table, std::uint64_t time, std::uint64_t address,
                    FoundRecord& function) {
  std::uint64_t first, end;
  if (address < table.begin || address >= table.end || table.past_count == 0) return Looked::kNone;
  if (!bytes.read(offsetof(wl_code_header, past_first), first) || !bytes.read(offsetof(wl_code_header, past_end), end))
    return Looked::kUnreadable;
  if (end - first > table.past_count) return Looked::kBadPlace;
  const auto offset = static_cast<std::uint32_t>(address - table.begin);
  Looked looked = Looked::kNone;
  for (; end != first; --end) {
    wl_code_past past;
    if (!bytes.read(table.past + (end - 1) % table.past_count * sizeof past, &past, sizeof past))
      return Looked::kUnreadable;
    if (past.time <= time) break;
    if (offset < past.begin || offset - past.begin >= past.size) continue;
    function.record = std::bit_cast<RecordWords>(wl_code_record{past.begin, past.size, past.shape, past.user});
    function.number = 0;
    function.past_name = past.name;
    looked = Looked::kFound;
  }
  return looked;
}

// The function that had an address at `time`. A function that is removed between the two look-ups, past and present,
// would be found in neither. `recycled` does not tell readers of that yet. But the past has then grown, so its end is
// compared.
template <typename Bytes>
[[gnu::noinline]] Looked look_up_then(Bytes bytes, const TableHeader& table, std::uint64_t time, std::uint64_t address,
                                      FoundRecord& function) {
  for (std::uint32_t attempt = 0; attempt < WL_CODE_RETRIES; ++attempt) {
    std::uint64_t before, after;
    if (!bytes.read(offsetof(wl_code_header, past_end), before)) return Looked::kUnreadable;
    Looked looked = look_up_past(bytes, table, time, address, function);
    if (looked == Looked::kNone) looked = look_up(bytes, table, address, function);
    if (looked != Looked::kNone) return looked;
    if (!bytes.read(offsetof(wl_code_header, past_end), after)) return Looked::kUnreadable;
    if (before == after) return looked;
  }
  return Looked::kChanging;
}

// The function that has an address, or had it then.
template <typename Bytes>
[[gnu::always_inline]] inline Looked look_up_at(const Bytes& bytes, const TableHeader& table, std::uint64_t time,
                                                std::uint64_t address, FoundRecord& function) {
  if (time != kNow) [[unlikely]] {
    FoundRecord then;  // one of its own, so that the usual one stays in registers
    const Looked looked = look_up_then(bytes, table, time, address, then);
    function = then;
    return looked;
  }
  return look_up(bytes, table, address, function);
}

template <typename Bytes>
Looked look_up_row(const Bytes& bytes, const TableHeader& table, std::uint64_t time, std::uint64_t address,
                   FoundRecord& function, RowPlace& place) {
  if (const Looked looked = look_up_at(bytes, table, time, address, function); looked != Looked::kFound) return looked;
  const auto inside = static_cast<std::uint32_t>(address - table.begin) - function.record.begin();
  const Looked looked = find_row(bytes, table, function.record, inside, place);
  return looked == Looked::kFound && place.full == 0 ? Looked::kNone : looked;
}

// ---- names --------------------------------------------------------------------------------------------------------

// `size` comes back as the bytes that were copied.
template <typename Bytes>
Looked read_name(const Bytes& bytes, const TableHeader& table, const FoundRecord& function, std::span<char> to,
                 std::size_t& size) {
  std::uint32_t name = function.past_name, length;
  size = 0;
  if (function.number != 0 && !bytes.read(table.name_of + std::uint64_t{function.number} * sizeof name, name))
    return Looked::kUnreadable;
  if (name == 0) return Looked::kFound;
  if (name % 4 != 0 || name > table.name_bytes || table.name_bytes - name < sizeof length) return Looked::kBadPlace;
  const std::uint64_t at = table.names + name;
  if (!bytes.read(at, length)) return Looked::kUnreadable;
  if (length > WL_CODE_MAX_NAME || length > table.name_bytes - name - sizeof length) return Looked::kBadPlace;
  const std::size_t wanted = std::min<std::size_t>(length, to.size());
  char piece[64];
  while (size < wanted) {
    const std::size_t now = std::min(sizeof piece, wanted - size);
    if (!bytes.read(at + sizeof length + size, piece, (now + 3) & ~std::size_t{3})) return Looked::kUnreadable;
    std::memcpy(to.data() + size, piece, now);
    size += now;
  }
  return Looked::kFound;
}

}  // namespace

Expected<CodeManagerReader> CodeManagerReader::open(const Memory& memory, std::uint64_t address) {
  wl_code_header header;
  if (!memory.read(address, &header, sizeof header)) return failed(Looked::kUnreadable, address);
  const auto table = check_header(header);
  if (!table) return Failure(table.error());
  return CodeManagerReader(*table, &memory, address, nullptr);
}

Expected<CodeManagerReader> CodeManagerReader::open(std::span<const std::byte> mapping) {
  wl_code_header header;
  if (reinterpret_cast<std::uintptr_t>(mapping.data()) % 8 != 0)
    return fail(ErrorCode::kMalformed, "code manager's table is not 8-aligned", 0);
  if (!MappedBytes(mapping.data(), mapping.size()).read(0, header))
    return fail(ErrorCode::kTruncated, "code manager's table ends in its header", 0, mapping.size());
  const auto table = check_header(header);
  if (!table) return Failure(table.error());
  if (table->size > mapping.size())
    return fail(ErrorCode::kTruncated, "code manager's table ends before it says", mapping.size(), table->size);
  return CodeManagerReader(*table, nullptr, 0, mapping.data());
}

Expected<FoundFunction> CodeManagerReader::find(std::uint64_t address) const {
  return with_bytes(*this, [&](const auto& bytes) -> Expected<FoundFunction> {
    FoundRecord found;
    const Looked looked = consistently(bytes, [&] { return look_up_at(bytes, table_, as_of_, address, found); });
    if (looked != Looked::kFound) return failed(looked, address);
    const RecordWords& record = found.record;
    return FoundFunction{table_.begin + record.begin(), record.size(), record.user(), record.shape() != 0};
  });
}

Expected<std::string_view> CodeManagerReader::name(std::uint64_t address, std::span<char> to) const {
  std::size_t size = 0;
  const Looked looked = with_bytes(*this, [&](const auto& bytes) {
    return consistently(bytes, [&] {
      FoundRecord function;
      const Looked found = look_up_at(bytes, table_, as_of_, address, function);
      return found == Looked::kFound ? read_name(bytes, table_, function, to, size) : found;
    });
  });
  if (looked != Looked::kFound) return failed(looked, address);
  return std::string_view(to.data(), size);
}

Expected<void> CodeManagerReader::row_at(std::uint64_t address, FrameRow& to, std::span<std::byte> expressions) const {
  const Looked looked = with_bytes(*this, [&](const auto& bytes) {
    return consistently(bytes, [&] {
      FoundRecord function;
      RowPlace place;
      const Looked found = look_up_row(bytes, table_, as_of_, address, function, place);
      if (found != Looked::kFound) return found;
      const std::uint64_t begin = table_.begin + function.record.begin();
      to.begin = begin + place.begin;
      to.end = begin + place.end;
      return read_row(bytes, table_, place.full, to, expressions);
    });
  });
  if (looked != Looked::kFound) return failed(looked, address);
  return {};
}

Expected<FoundRule> manager::rule_at(const CodeManagerReader& reader, std::uint64_t address) {
  const TableHeader& table = CodeTableAccess::table(reader);
  RowPlace place;
  const Looked looked = with_bytes(reader, [&](const auto& bytes) {
    return consistently(bytes, [&] {
      FoundRecord function;
      return look_up_row(bytes, table, kNow, address, function, place);
    });
  });
  if (looked != Looked::kFound) return failed(looked, address);
  return FoundRule{place.rule, place.x_reg};
}

Failure manager::failed(Looked looked, std::uint64_t address) {
  switch (looked) {
    case Looked::kUnreadable: return fail(ErrorCode::kUnreadable, "code manager's table cannot be read", address);
    case Looked::kBadPlace:
      return fail(ErrorCode::kOutOfRange, "code manager's table leads out of one of its sections", address);
    case Looked::kBadRow: return fail(ErrorCode::kMalformed, "row in a code manager's table is malformed", address);
    case Looked::kNoRoom:
      return fail(ErrorCode::kLimit, "expressions of a code manager's row do not fit into the room given", address);
    case Looked::kChanging:
      return fail(ErrorCode::kLimit, "functions of a code manager were taken away during each attempt to look one up",
                  address);
    case Looked::kFound:
    case Looked::kNone: break;
  }
  return fail(ErrorCode::kNotFound, "code manager has no function or row at the address", address);
}

}  // namespace windlass
