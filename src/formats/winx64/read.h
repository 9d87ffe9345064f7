// Reads Windows x64 unwind information: the function table's entries and UNWIND_INFO of versions 1, 2 and 3. Sources:
// for version 1 "x64 exception handling" (Microsoft); for version 2 the unwinder of .NET (coreclr/unwinder/amd64) and
// LLVM; for version 3 "x64 unwind information v3", a preview. Nothing here allocates.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/image/function_table.h"
#include "formats/image/pe.h"
#include "windlass/bytes.h"
#include "windlass/format/winx64.h"

namespace windlass::winx64 {

inline constexpr unsigned kMaxChain = 32;  // as Windows and .NET: UNWIND_CHAIN_LIMIT

// UWOP_*, then what only version 3 has.
enum class Operation : std::uint8_t {
  kPushNonvol = 0,
  kAllocLarge = 1,
  kAllocSmall = 2,
  kSetFpreg = 3,
  kSaveNonvol = 4,
  kSaveNonvolFar = 5,
  kEpilog = 6,  // version 2; in version 1 it was a save of 64 bits of an XMM register, which nothing emits any more
  kSpare = 7,   // likewise with a far displacement
  kSaveXmm128 = 8,
  kSaveXmm128Far = 9,
  kPushMachframe = 10,
  kSetFpregLarge = 11,  // .NET on Unix only
  kPush2 = 16,
  kPushConsecutive2 = 17,
  kAllocHuge = 18,
  kPushCanonicalFrame = 19,
};
// "PUSH_NONVOL".
[[nodiscard]] std::string_view operation_name(Operation operation);

enum Flag : std::uint8_t { kEhandler = 1, kUhandler = 2, kChaininfo = 4, kLarge = 8 /* version 3 */ };

// One operation of a prologue (or, in version 3, an epilogue).
struct UnwindCode {
  std::uint16_t offset = 0;  // of the end of the instruction, from the function's start (version 3: of its start)
  Operation operation = Operation::kPushNonvol;
  std::uint8_t info = 0;    // operation info as stored; a register's number where the operation has one
  std::uint8_t second = 0;  // PUSH2: the other register
  std::uint8_t slots = 1;   // how many 16-bit slots it fills (version 3: bytes of the pool)
  std::uint32_t value = 0;  // bytes: the size allocated, the displacement, the frame register's offset from rsp;
                            // EPILOG: see `Epilogs`
};

// UNWIND_INFO. `codes` and `payload` are views of the image.
struct UnwindInfo {
  std::uint32_t rva = 0;
  std::uint8_t version = 1;
  std::uint8_t flags = 0;
  std::uint16_t prolog_size = 0;
  std::uint8_t frame_register = 0;   // 0: none (rax cannot be one)
  std::uint8_t frame_offset = 0;     // as stored: x 16 bytes
  std::uint8_t slot_count = 0;       // CountOfCodes: 16-bit slots; version 3: 16-bit words of payload
  std::uint8_t operation_count = 0;  // version 3: NumberOfOps
  std::uint8_t epilog_count = 0;     // version 3: NumberOfEpilogs
  ByteView codes;                    // slot_count * 2 bytes
  std::uint32_t handler = 0;         // RVA; 0: none
  std::uint32_t handler_data = 0;    // RVA of the language-specific data behind it
  std::optional<RuntimeFunction> chained;

  [[nodiscard]] bool has(Flag flag) const { return (flags & flag) != 0; }
};

// Errors name the RVA. `rva` need not be aligned (the text wants it to be, x64 does not mind).
[[nodiscard]] Expected<UnwindInfo> read_unwind_info(const image::PeImage& image, std::uint32_t rva);
// The same from bytes: the first is that at `rva`.
[[nodiscard]] Expected<UnwindInfo> parse_unwind_info(ByteView bytes, std::uint32_t rva);
// The same without saying why not. A default-constructed `to` is filled; it is undefined where the answer is false.
[[nodiscard]] inline bool parse_unwind_info(ByteView bytes, std::uint32_t rva, UnwindInfo& to);

// The code in slot `index` of a version 1 or 2 information; index < slot_count. Errors: kTruncated where the operation
// needs more slots than there are, kUnsupported for an operation code that nobody defines.
[[nodiscard]] Expected<UnwindCode> code_at(const UnwindInfo& info, unsigned index);
// The same without saying why not.
[[nodiscard]] inline bool code_at(const UnwindInfo& info, unsigned index, UnwindCode& code);

// Calls callback(code) for every code of version 1 or 2, as stored: the last operation of the prologue first.
template <typename Callback>
Expected<void> each_code(const UnwindInfo& info, Callback&& callback) {
  UnwindCode code;
  for (unsigned index = 0; index < info.slot_count; index += code.slots) {
    if (!code_at(info, index, code)) return Failure(code_at(info, index).error());
    callback(code);
  }
  return {};
}

// ---- how the above is done: inline, as it is most of what a step costs ---------------------------------------------

// 16-bit slot `index` of the codes; there are that many.
[[nodiscard]] inline std::uint32_t slot_at(ByteView codes, unsigned index) {
  std::uint16_t slot;
  std::memcpy(&slot, codes.data() + std::size_t{2} * index, sizeof slot);
  return slot;
}

// The shape of an operation of version 1 or 2. Its value stands in its info (1 slot), in the slot behind it (2), or in
// the two slots behind it (3). That value is multiplied by `scale`, and `bias` is added.
struct OperationShape {
  std::uint8_t slots = 0;  // 0: there is no such operation
  std::uint8_t scale = 0;
  std::uint8_t bias = 0;
};
inline constexpr std::size_t kShapes = 16;

// Version 1's old uses of 6 and 7 had 2 and 3 slots. Version 2's EPILOG is a slot each. These come in pairs, so .NET,
// which skips two at a time, sees the same. ALLOC_LARGE is the short form; in the long form info is not 0. The
// specification says that saves are "scaled by 8", and every unwinder does so. Early texts said 16.
inline constexpr OperationShape kOperationShapes[2][kShapes] = {
    // PUSH, ALLOC_LARGE, ALLOC_SMALL, SET_FPREG, SAVE, SAVE_FAR, EPILOG, SPARE, XMM, XMM_FAR, MACHFRAME, FPREG_LARGE
    {{1}, {2, 8}, {1, 8, 8}, {1}, {2, 8}, {3, 1}, {2}, {3}, {2, 16}, {3, 1}, {1}, {3}},
    {{1}, {2, 8}, {1, 8, 8}, {1}, {2, 8}, {3, 1}, {1}, {3}, {2, 16}, {3, 1}, {1}, {3}},
};

inline bool code_at(const UnwindInfo& info, unsigned index, UnwindCode& code) {
  const std::uint32_t first = slot_at(info.codes, index);
  const unsigned operation = first >> 8 & 15;
  code.offset = first & 255;
  code.info = static_cast<std::uint8_t>(first >> 12);
  code.operation = static_cast<Operation>(operation);
  OperationShape shape = kOperationShapes[info.version == 2 ? 1 : 0][operation];
  if (code.operation == Operation::kAllocLarge && code.info != 0) shape = {3, 1};
  if (shape.slots == 0 || shape.slots > info.slot_count - index) return false;
  code.slots = shape.slots;
  std::uint32_t raw = code.info;
  if (shape.slots > 1) raw = slot_at(info.codes, index + 1);
  if (shape.slots > 2) raw |= slot_at(info.codes, index + 2) << 16;
  code.value = raw * shape.scale + shape.bias;
  if (code.operation == Operation::kSetFpreg) code.value = info.frame_offset * 16U;
  // .NET on Unix (JitEEInterface, for frames whose register points far into them): 28 bits, x 16; FrameOffset is 15.
  if (code.operation == Operation::kSetFpregLarge) code.value = (raw & 0x0fff'ffff) * 16;
  return true;
}

inline constexpr std::uint64_t kHeaderSize = 4;

inline void read_header(std::uint32_t header, std::uint32_t rva, UnwindInfo& info) {
  info.rva = rva;
  info.version = header & 7;
  info.flags = header >> 3 & 31;
  info.prolog_size = header >> 8 & 255;
  info.slot_count = static_cast<std::uint8_t>(header >> 16);
  if (info.version == 3) {  // the fourth byte has another meaning there
    info.operation_count = header >> 24 & 31;
    info.epilog_count = static_cast<std::uint8_t>(header >> 29);
  } else {
    info.frame_register = header >> 24 & 15;
    info.frame_offset = static_cast<std::uint8_t>(header >> 28);
  }
}

inline std::uint32_t word_at(ByteView bytes, std::uint64_t at) {
  std::uint32_t word;
  std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

// What follows the codes, aligned to 4: a handler's RVA and its data, or the chained entry. False: it is cut off.
inline bool read_tail(ByteView bytes, std::uint64_t codes_size, UnwindInfo& info) {
  const std::uint64_t at = (kHeaderSize + codes_size + 3) / 4 * 4;
  if (info.has(kChaininfo)) {
    // Chained and with a handler at once is forbidden; Windows tests the chain first where it unwinds.
    if (at + sizeof(RuntimeFunction) > bytes.size()) return false;
    info.chained = RuntimeFunction{word_at(bytes, at), word_at(bytes, at + 4), word_at(bytes, at + 8)};
  } else if (info.has(kEhandler) || info.has(kUhandler)) {
    if (at + sizeof(std::uint32_t) > bytes.size()) return false;
    info.handler = word_at(bytes, at);
    info.handler_data = info.rva + static_cast<std::uint32_t>(at) + 4;
  }
  return true;
}

// How long the information is whose header `bytes` has: with its codes and what stands behind them.
[[nodiscard]] inline std::uint64_t info_size(ByteView bytes) {
  UnwindInfo info;
  read_header(word_at(bytes, 0), 0, info);
  const std::uint64_t codes = (kHeaderSize + 2ULL * info.slot_count + 3) / 4 * 4;
  if (info.has(kChaininfo)) return codes + sizeof(RuntimeFunction);
  return info.has(kEhandler) || info.has(kUhandler) ? codes + sizeof(std::uint32_t) : codes;
}

inline bool parse_unwind_info(ByteView bytes, std::uint32_t rva, UnwindInfo& info) {
  if (bytes.size() < kHeaderSize) return false;
  read_header(word_at(bytes, 0), rva, info);
  if (info.version < 1 || info.version > 3) return false;
  const std::uint64_t codes_size = 2ULL * info.slot_count;
  if (kHeaderSize + codes_size > bytes.size()) return false;
  info.codes = ByteView(bytes.data() + kHeaderSize, codes_size, bytes.origin() + kHeaderSize);
  if (!read_tail(bytes, codes_size, info)) return false;
  if (info.version == 3 && info.has(kLarge)) {
    if (codes_size == 0) return false;
    info.prolog_size = static_cast<std::uint16_t>(info.prolog_size | info.codes.u8()[0] << 8);
  }
  return true;
}

// An epilogue of version 2: `size` bytes from `begin` on. It leaves out the `add` or `lea` that frees the fixed
// allocation. Its last instruction (ret or jmp) counts as one byte, however long that is.
struct Epilog {
  std::uint32_t begin = 0;
  std::uint32_t size = 0;
};

// The epilogues of a version 2 record whose function ends at `end`. The first EPILOG code has the common size, and says
// (bit 0) whether an epilogue ends the function. Each further code has an offset back from the end; 0 is padding to an
// even number of slots.
template <typename Callback>
void each_epilog(const UnwindInfo& info, std::uint32_t end, Callback&& callback) {
  if (info.version != 2) return;
  std::uint32_t size = 0;
  for (unsigned index = 0; index < info.slot_count; ++index) {
    const std::uint32_t slot = slot_at(info.codes, index);
    if (static_cast<Operation>(slot >> 8 & 15) != Operation::kEpilog) return;
    if (index == 0) {
      size = slot & 255;
      if (size == 0) return;
      if ((slot >> 12 & 1) != 0) callback(Epilog{end - size, size});
      continue;
    }
    const std::uint32_t back = slot >> 12 << 8 | (slot & 255);
    if (back == 0) return;
    callback(Epilog{end - back, size});
  }
}

// ---- version 3 ----------------------------------------------------------------------------------------------------

// EPILOG_INFO_V3, with the fields that it inherits from the descriptor before.
struct EpilogV3 {
  std::uint8_t flags = 0;  // as stored in this descriptor
  bool inherited = false;  // everything but the offset is its predecessor's
  bool parent_transfer = false;
  bool large = false;
  std::uint8_t operation_count = 0;
  std::int64_t offset = 0;     // of its first instruction: from the fragment's start, or if negative from its end
  std::uint16_t first_op = 0;  // byte of the pool
  std::uint16_t last_instruction = 0;  // bytes from its start
  ByteView ip_offsets;
};

// The parts of a version 3 payload.
struct PayloadV3 {
  ByteView ip_offsets;  // of the prologue: 1 byte each, 2 with kLarge
  ByteView pool;        // winding operation descriptors; the prologue's are its first
  EpilogV3 epilogs[7];
  std::uint8_t epilog_count = 0;
};
[[nodiscard]] Expected<PayloadV3> read_payload_v3(const UnwindInfo& info);
// The descriptor at a byte of the pool. `offset` of the result is 0: it stands in the ip offsets.
[[nodiscard]] Expected<UnwindCode> descriptor_at(ByteView pool, std::uint64_t at);

// Calls callback(code) for the `count` operations from `at` on, with the offsets given.
template <typename Callback>
Expected<void> each_descriptor(ByteView pool, std::uint64_t at, unsigned count, ByteView ip_offsets, bool wide,
                               Callback&& callback) {
  for (unsigned i = 0; i < count; ++i) {
    auto code = descriptor_at(pool, at);
    if (!code) return Failure(code.error());
    const auto offset =
        wide ? ip_offsets.at<std::uint16_t>(2ULL * i) : Expected<std::uint16_t>(ip_offsets.at<std::uint8_t>(i));
    if (!offset) return Failure(offset.error());
    code->offset = *offset;
    callback(*code);
    at += code->slots;
  }
  return {};
}

// ---- the function table -------------------------------------------------------------------------------------------

// What finding a function needs: the image and its function table in order. Look-ups neither allocate nor lock.
class Functions {
 public:
  explicit Functions(const image::PeImage& image)
      : image_(&image), table_(image.x64_functions(), 12), identity_(next_identity()) {}

  [[nodiscard]] const image::PeImage& image() const { return *image_; }
  [[nodiscard]] const image::FunctionTable& table() const { return table_; }
  [[nodiscard]] std::size_t size() const { return table_.size(); }
  // Tells this image, and data copied from it, from all other images of the process. 0: there have been too many.
  [[nodiscard]] std::uint32_t identity() const { return identity_; }
  // The entry at a position of the stored table, as stored.
  [[nodiscard]] RuntimeFunction stored(std::size_t index) const {
    return {table_.word(index, 0), table_.word(index, 1), table_.word(index, 2)};
  }
  // The entry whose range contains `rva`, as stored. As FunctionTable::last_at_or_before.
  [[nodiscard]] std::optional<RuntimeFunction> find(std::uint32_t rva) const {
    RuntimeFunction function;
    if (!find(rva, function)) return std::nullopt;
    return function;
  }
  // The same for who does it all the time: an optional is made in parts and copied whole, for which the processor
  // waits.
  [[nodiscard]] bool find(std::uint32_t rva, RuntimeFunction& to) const {
    const auto rank = table_.last_at_or_before(rva);
    if (!rank) return false;
    to = stored(table_.stored_index(*rank));
    return rva < to.end;
  }
  // The bytes from `rva` on, at most `wanted` of them; empty where the image has none.
  [[nodiscard]] ByteView bytes(std::uint32_t rva, std::uint32_t wanted) const {
    const ByteView rest = image_->rest_from(rva);
    return {rest.data(), rest.size() < wanted ? rest.size() : wanted, rest.origin()};
  }

 private:
  [[nodiscard]] static std::uint32_t next_identity();

  const image::PeImage* image_;
  image::FunctionTable table_;
  std::uint32_t identity_;
};

// Does an entry's own information say that the system put a machine frame on the stack?
[[nodiscard]] bool has_machine_frame(const Functions& functions, const RuntimeFunction& entry);

}  // namespace windlass::winx64
