// What a packed entry stands for: "Packed unwind data" in the page, its table of canonical prologues as corrected by
// .NET's RtlpExpandCompactToFull and by what compilers emit.
//
//   Step 0  pacibsp                                     CR = 2, which is chained as 3 is
//   Step 1  stp x19,x20,[sp,#-savsz]!  stp x21,x22,[sp,#16] ...  (an odd last one: str)
//   Step 2  str lr,[sp,#intsz-8], or paired with an odd last integer register          CR = 1
//   Step 3  stp d8,d9,[sp,#intsz] ...; the first of all saves moves sp by savsz
//   Step 4  stp x0,x1,[sp,#savsz-64] ... stp x6,x7      H
//   Step 5  the rest of the frame, x29 and lr at its bottom and x29 = sp where chained
#include "formats/winarm64/read.h"

namespace windlass::winarm64 {
namespace {

constexpr std::uint8_t kNopCode = 0xe3, kEndCode = 0xe4, kEndCCode = 0xe5, kSetFpCode = 0xe1, kPacCode = 0xfc;
constexpr unsigned kAllocMCode = 0xc000, kSaveRegpCode = 0xc800, kSaveRegpXCode = 0xcc00, kSaveRegCode = 0xd000,
                   kSaveRegXCode = 0xd400, kSaveLrpairCode = 0xd600, kSaveFregpCode = 0xd800, kSaveFregpXCode = 0xda00,
                   kSaveFregCode = 0xdc00;

constexpr unsigned kLrFromX19 = 30 - 19;  // as save_reg counts
constexpr std::uint32_t kHomeSize = 64;

[[nodiscard]] bool chained(const PackedFields& fields) { return fields.cr >= 2; }

}  // namespace

PackedFields packed_fields(RuntimeFunction function) {
  const std::uint32_t data = function.data;
  return {
      (data >> 2 & 0x7ff) * 4, static_cast<std::uint8_t>(data >> 13 & 7), static_cast<std::uint8_t>(data >> 16 & 15),
      (data >> 20 & 1) != 0,   static_cast<std::uint8_t>(data >> 21 & 3), (data >> 23) * 16};
}

void Expansion::put_alloc(std::uint32_t size) {
  if (size < 512)
    put(static_cast<std::uint8_t>(size / 16));
  else
    put2(kAllocMCode | size / 16);
}

// `offset`: of the next save from the bottom of the save area; 0 = sp has not been moved yet, and the first save does.
void Expansion::put_integer_saves(const PackedFields& fields, std::uint32_t saved_size, std::uint32_t& offset) {
  const bool saves_lr = fields.cr == 1;
  // There is no save_lrpair_x: x19 and lr alone take `sub sp` and `stp x19,lr,[sp]`, two instructions. The page's table
  // is wrong here; MSVC emits the two (4,294 times in node.exe), .NET unwinds and llvm-readobj prints them.
  const bool alone = fields.reg_i == 1 && saves_lr;
  if (alone) put_alloc(saved_size);
  unsigned reg = 0;
  for (; reg + 1 < fields.reg_i; reg += 2, offset += 16)
    put2(offset == 0 ? kSaveRegpXCode | reg << 6 | (saved_size / 8 - 1) : kSaveRegpCode | reg << 6 | offset / 8);
  const auto single = [&](unsigned number) {
    put2(offset == 0 ? kSaveRegXCode | number << 5 | (saved_size / 8 - 1) : kSaveRegCode | number << 6 | offset / 8);
    offset += 8;
  };
  if (reg < fields.reg_i && saves_lr) {
    put2(kSaveLrpairCode | reg / 2 << 6 | offset / 8);
    offset += 16;
  } else if (reg < fields.reg_i) {
    single(reg);
  } else if (saves_lr) {
    single(kLrFromX19);
  }
}

void Expansion::put_vector_saves(const PackedFields& fields, std::uint32_t saved_size, std::uint32_t& offset) {
  const unsigned count = fields.reg_f == 0 ? 0 : fields.reg_f + 1U;
  unsigned reg = 0;
  for (; reg + 1 < count; reg += 2, offset += 16)
    put2(offset == 0 ? kSaveFregpXCode | reg << 6 | (saved_size / 8 - 1) : kSaveFregpCode | reg << 6 | offset / 8);
  if (reg < count) {
    put2(kSaveFregCode | reg << 6 | offset / 8);  // the third or a later one, so sp has been moved
    offset += 8;
  }
}

void Expansion::put_locals(const PackedFields& fields, std::uint32_t size) {
  if (chained(fields) && size <= 512) {
    put(static_cast<std::uint8_t>(0x80 | (size / 8 - 1)));
  } else {
    // An immediate reaches 4,095. .NET expands to one alloc, which is one instruction short; the page, LLVM and MSVC
    // have two.
    if (size > 4080) put_alloc(4080);
    if (size > 0) put_alloc(size > 4080 ? size - 4080 : size);
    if (chained(fields)) put(0x40);  // save_fplr at [sp]
  }
  if (chained(fields)) put(kSetFpCode);
}

Expected<void> Expansion::expand(const PackedFields& fields, bool fragment, std::uint32_t rva) {
  first_ = end_ = kMiddle;
  epilogue_index_ = kNoEpilogue;
  if (fields.reg_i > 10)
    return fail(ErrorCode::kMalformed, "packed entry saves more integer registers than x19-x28", rva, fields.reg_i);
  const std::uint32_t integers = fields.reg_i * 8U + (fields.cr == 1 ? 8 : 0);
  const std::uint32_t vectors = fields.reg_f == 0 ? 0 : fields.reg_f * 8U + 8;
  // With nothing saved, sp has not moved when the parameters are homed. So these are stored behind the prologue, into
  // the locals, and the save area is empty (.NET; measured on Windows, LLVM pull request 170294). The specification's
  // formula counts them.
  const bool homes = fields.h && integers + vectors > 0;
  const std::uint32_t saved_size = (integers + vectors + (homes ? kHomeSize : 0) + 15) & ~15U;
  if (saved_size + (chained(fields) ? 16 : 0) > fields.frame_size)
    return fail(ErrorCode::kMalformed, "packed entry's frame is smaller than what it saves", rva, fields.frame_size);

  put(kEndCode);
  if (fields.cr == 2) put(kPacCode);
  std::uint32_t offset = 0;
  put_integer_saves(fields, saved_size, offset);
  put_vector_saves(fields, saved_size, offset);
  const std::uint8_t before_homes = first_;
  if (homes)
    for (int i = 0; i < 4; ++i) put(kNopCode);
  const std::uint8_t after_homes = first_;
  put_locals(fields, fields.frame_size - saved_size);
  if (fragment) {
    put(kEndCCode);  // none of the prologue is here, all of it has run
    return {};
  }
  // The epilogue undoes the prologue, except for x29 = sp and the homing. The page and .NET have no instructions for
  // homing in the epilogue. .NET copies the codes without the nops, as is done here. But a measurement on Windows of
  // 2022 (LLVM issue 54879) found that this system expects four nops there.
  epilogue_index_ = chained(fields) ? 1 : 0;
  if (homes) {
    const auto start = static_cast<std::uint8_t>(first_ + epilogue_index_);
    epilogue_index_ = static_cast<std::uint8_t>(kMiddle - first_);
    for (std::uint8_t at = start; at < kMiddle; ++at)
      if (at < after_homes || at >= before_homes) bytes_[end_++] = bytes_[at];
  }
  return {};
}

}  // namespace windlass::winarm64
