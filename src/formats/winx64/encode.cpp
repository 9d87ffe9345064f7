#include "formats/winx64/encode.h"

namespace windlass::winx64 {
namespace {

constexpr std::uint32_t kMaxSlots = 255;                       // CountOfCodes is a byte
constexpr std::uint32_t kMaxOffset = 255;                      // so is CodeOffset, and SizeOfProlog
constexpr std::uint32_t kMaxFrameOffset = 15 * 16;             // 4 bits, scaled
constexpr std::uint32_t kMaxSmall = 128, kMaxScaled = 0xffff;  // ALLOC_SMALL; 16 bits of 8 or 16 bytes
constexpr std::uint32_t kMaxEpilogOffset = 0xfff;              // 12 bits

// What the displacement of a save is a multiple of; 0: the operation is no save.
std::uint32_t save_unit(Operation operation) {
  switch (operation) {
    case Operation::kSaveNonvol:
    case Operation::kSaveNonvolFar: return 8;
    case Operation::kSaveXmm128:
    case Operation::kSaveXmm128Far: return 16;
    default: return 0;
  }
}

bool is_allocation(Operation operation) {
  return operation == Operation::kAllocSmall || operation == Operation::kAllocLarge;
}

Expected<void> check_code(const UnwindCode& code) {
  if (code.info > 15) return fail(ErrorCode::kOutOfRange, "operation info has 4 bits", code.offset, code.info);
  if (const std::uint32_t unit = save_unit(code.operation); unit != 0) {
    if (code.value % unit != 0)
      return fail(ErrorCode::kOutOfRange,
                  unit == 8 ? "a register is saved at a multiple of 8 from the frame"
                            : "an xmm register is saved at a multiple of 16 from the frame",
                  code.offset, code.value);
    return {};
  }
  if (is_allocation(code.operation) && (code.value == 0 || code.value % 8 != 0))
    return fail(ErrorCode::kOutOfRange, "an allocation is a multiple of 8, from 8 to 4G - 8 bytes", code.offset,
                code.value);
  switch (code.operation) {
    case Operation::kPushNonvol:
    case Operation::kAllocSmall:
    case Operation::kAllocLarge:
    case Operation::kSetFpreg: return {};
    case Operation::kPushMachframe:
      if (code.info > 1) return fail(ErrorCode::kOutOfRange, "a machine frame has an error code or not", code.offset);
      return {};
    default:
      return fail(ErrorCode::kUnsupported, "operation is none of a prologue that Windows knows", code.offset,
                  static_cast<std::uint64_t>(code.operation));
  }
}

// The order and the frame register.
Expected<void> check_codes(const InfoContent& content) {
  std::uint32_t below = content.prolog_size;
  bool framed = false;
  for (std::size_t i = 0; i < content.codes.size(); ++i) {
    const UnwindCode& code = content.codes[i];
    if (code.offset > below)
      return fail(ErrorCode::kMalformed,
                  i == 0 ? "an operation of the prologue ends behind it"
                         : "operations are stored by descending offset, the prologue's last first",
                  code.offset, below);
    below = code.offset;
    if (const auto ok = check_code(code); !ok) return ok;
    if (code.operation == Operation::kSetFpreg) {
      if (framed) return fail(ErrorCode::kMalformed, "SET_FPREG stands twice", code.offset);
      framed = true;
      if (content.frame_register == 0)
        return fail(ErrorCode::kMalformed, "SET_FPREG needs a frame register; rax, number 0, cannot be one",
                    code.offset);
    }
    if (code.operation == Operation::kPushMachframe && i + 1 != content.codes.size())
      return fail(ErrorCode::kMalformed, "a machine frame comes before every other operation", code.offset);
  }
  return {};
}

Expected<void> check_header(const InfoContent& content) {
  if (content.version != 1 && content.version != 2)
    return fail(ErrorCode::kUnsupported, "versions 1, 2 and 3 are written", 0, content.version);
  if ((content.flags & ~std::uint32_t{kEhandler | kUhandler | kChaininfo}) != 0)
    return fail(ErrorCode::kUnsupported, "flags are EHANDLER, UHANDLER and CHAININFO", 0, content.flags);
  if (content.prolog_size > kMaxOffset)
    return fail(ErrorCode::kOutOfRange, "a prologue has at most 255 bytes", content.prolog_size, content.prolog_size);
  if (content.frame_register > 15)
    return fail(ErrorCode::kOutOfRange, "the frame register has 4 bits", 0, content.frame_register);
  if (content.frame_offset > kMaxFrameOffset || content.frame_offset % 16 != 0)
    return fail(ErrorCode::kOutOfRange, "the frame register's offset is a multiple of 16, at most 240", 0,
                content.frame_offset);
  if (content.frame_register == 0 && content.frame_offset != 0)
    return fail(ErrorCode::kMalformed, "an offset needs a frame register", 0, content.frame_offset);
  const bool handled = (content.flags & (kEhandler | kUhandler)) != 0;
  const bool chains = (content.flags & kChaininfo) != 0;
  if (handled && chains)
    return fail(ErrorCode::kMalformed, "chained information has no handler: the first entry's holds", 0, content.flags);
  if (chains != content.chained.has_value())
    return fail(ErrorCode::kMalformed, "CHAININFO and a chained entry come together", 0, content.flags);
  if (!handled && (content.handler != 0 || !content.handler_data.empty()))
    return fail(ErrorCode::kMalformed, "a handler needs EHANDLER or UHANDLER", 0, content.handler);
  return {};
}

Expected<void> check_epilogs(const InfoContent& content) {
  if (content.epilog_size == 0 && !content.epilog_at_end && content.epilog_offsets.empty()) return {};
  if (content.version != 2) return fail(ErrorCode::kUnsupported, "version 1 does not describe epilogues", 0);
  if (content.epilog_size == 0 || content.epilog_size > kMaxOffset)
    return fail(ErrorCode::kOutOfRange, "an epilogue has 1 to 255 bytes", 0, content.epilog_size);
  for (const std::uint32_t back : content.epilog_offsets) {
    if (back == 0 || back > kMaxEpilogOffset)
      return fail(ErrorCode::kOutOfRange, "an epilogue begins at most 4095 bytes before the function's end", 0, back);
  }
  return {};
}

// Slots of the EPILOG codes, an even number.
std::size_t epilog_slots(const InfoContent& content) {
  return content.epilog_size == 0 ? 0 : (content.epilog_offsets.size() + 2) / 2 * 2;
}

Failure too_many(std::uint64_t where, std::size_t slots) {
  return fail(ErrorCode::kOutOfRange, "operations and epilogues fill at most 255 slots", where, slots);
}

class Encoder {
 public:
  std::vector<std::byte> run(const InfoContent& content, std::size_t slots) {
    u8(content.version | content.flags << 3);
    u8(content.prolog_size);
    u8(static_cast<std::uint32_t>(slots));
    u8(content.frame_register | content.frame_offset / 16 << 4);
    epilogs(content);
    for (const UnwindCode& code : content.codes) operation(code);
    if (slots % 2 != 0) u16(0);
    append_chain_or_handler(content, bytes_);
    return std::move(bytes_);
  }

 private:
  void epilogs(const InfoContent& content) {
    if (content.epilog_size == 0) return;
    slot(content.epilog_size, Operation::kEpilog, content.epilog_at_end ? 1 : 0);
    for (const std::uint32_t back : content.epilog_offsets) slot(back & 0xff, Operation::kEpilog, back >> 8);
    if (content.epilog_offsets.size() % 2 == 0) slot(0, Operation::kEpilog, 0);
  }

  void operation(const UnwindCode& code) {
    const unsigned slots = slots_of(code);
    if (is_allocation(code.operation)) {
      if (slots == 1) return slot(code.offset, Operation::kAllocSmall, code.value / 8 - 1);
      slot(code.offset, Operation::kAllocLarge, slots - 2);
      return slots == 2 ? u16(code.value / 8) : u32(code.value);
    }
    const std::uint32_t unit = save_unit(code.operation);
    if (unit == 0) return slot(code.offset, code.operation, code.operation == Operation::kSetFpreg ? 0 : code.info);
    const bool far = slots == 3;
    if (unit == 8)
      slot(code.offset, far ? Operation::kSaveNonvolFar : Operation::kSaveNonvol, code.info);
    else
      slot(code.offset, far ? Operation::kSaveXmm128Far : Operation::kSaveXmm128, code.info);
    far ? u32(code.value) : u16(code.value / unit);
  }

  void slot(std::uint32_t offset, Operation operation, std::uint32_t info) {
    u8(offset);
    u8(static_cast<std::uint32_t>(operation) | info << 4);
  }
  void u8(std::uint32_t value) { bytes_.push_back(static_cast<std::byte>(value)); }
  void u16(std::uint32_t value) { u8(value & 0xff), u8(value >> 8 & 0xff); }
  void u32(std::uint32_t value) { u16(value & 0xffff), u16(value >> 16); }

  std::vector<std::byte> bytes_;
};

}  // namespace

void append_chain_or_handler(const InfoContent& content, std::vector<std::byte>& to) {
  const auto u32 = [&](std::uint32_t value) {
    for (unsigned i = 0; i < 4; ++i) to.push_back(static_cast<std::byte>(value >> (8 * i) & 0xff));
  };
  if (content.chained) {
    u32(content.chained->begin);
    u32(content.chained->end);
    u32(content.chained->info);
  } else if ((content.flags & (kEhandler | kUhandler)) != 0) {
    u32(content.handler);
    to.insert(to.end(), content.handler_data.begin(), content.handler_data.end());
    to.resize((to.size() + 3) / 4 * 4);
  }
}

unsigned slots_of(const UnwindCode& code) {
  if (is_allocation(code.operation)) return code.value <= kMaxSmall ? 1 : code.value / 8 <= kMaxScaled ? 2 : 3;
  const std::uint32_t unit = save_unit(code.operation);
  return unit == 0 ? 1 : code.value / unit <= kMaxScaled ? 2 : 3;
}

Expected<std::vector<std::byte>> encode(const InfoContent& content) {
  if (content.version == 3) return encode_v3(content);
  for (const auto check : {&check_header, &check_epilogs, &check_codes}) {
    if (const auto ok = check(content); !ok) return Failure(ok.error());
  }
  std::size_t slots = epilog_slots(content);
  if (slots > kMaxSlots) return too_many(0, slots);
  for (auto code = content.codes.rbegin(); code != content.codes.rend(); ++code) {
    slots += slots_of(*code);
    if (slots > kMaxSlots) return too_many(code->offset, slots);
  }
  return Encoder().run(content, slots);
}

Expected<InfoContent> decode(const UnwindInfo& info) {
  InfoContent content;
  content.version = info.version;
  content.flags = info.flags;
  content.prolog_size = info.prolog_size;
  content.frame_register = info.frame_register;
  content.frame_offset = info.frame_offset * 16U;
  content.handler = info.handler;
  content.chained = info.chained;
  bool first = true;
  const auto ok = each_code(info, [&](const UnwindCode& code) {
    const std::uint32_t back = static_cast<std::uint32_t>(code.info) << 8 | (code.offset & 0xff);
    if (code.operation != Operation::kEpilog || info.version == 1) {
      content.codes.push_back(code);
    } else if (first) {
      content.epilog_size = back & 0xff;
      content.epilog_at_end = (code.info & 1) != 0;
    } else if (back != 0) {
      content.epilog_offsets.push_back(back);
    }
    first = false;
  });
  if (!ok) return Failure(ok.error());
  return content;
}

}  // namespace windlass::winx64
