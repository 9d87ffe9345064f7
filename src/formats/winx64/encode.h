// Writes UNWIND_INFO: the counterpart of read.h. What is below writes operations as they are given;
// frame_codes.h chooses them for a Prologue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "formats/winx64/read.h"
#include "windlass/format/winx64.h"

namespace windlass::winx64 {

// An epilogue of version 3. Its operations stand in the order of the code. Their offsets count from its begin.
struct EpilogContent {
  std::uint32_t begin = 0;             // from the entry's begin
  std::uint16_t last_instruction = 0;  // from its begin
  bool parent_transfer = false;
  std::vector<UnwindCode> codes = {};
  [[nodiscard]] bool large() const { return last_instruction > 0xff; }
  [[nodiscard]] bool same_instructions(const EpilogContent& other) const;
};

// UNWIND_INFO with its operations decoded.
struct InfoContent {
  std::uint32_t version = 1;
  std::uint32_t flags = 0;  // kEhandler, kUhandler, kChaininfo; version 3: kLarge
  std::uint32_t prolog_size = 0;
  std::uint32_t frame_register = 0;  // instruction number; 0: none
  std::uint32_t frame_offset = 0;    // bytes
  // As stored: the prologue's last operation first. Of each, offset, operation, info (a register, or PUSH_MACHFRAME's
  // error code) and value count. The long and the short forms of an operation are the same: the size decides.
  std::vector<UnwindCode> codes = {};
  // Version 2. 0: no epilogue is described.
  std::uint32_t epilog_size = 0;
  bool epilog_at_end = false;                      // one ends the function
  std::vector<std::uint32_t> epilog_offsets = {};  // of the others: from where they begin to the function's end
  std::vector<EpilogContent> epilogs_v3 = {};
  std::uint32_t handler = 0;                 // RVA
  std::vector<std::byte> handler_data = {};  // behind it; decode() cannot know how much there is
  std::optional<RuntimeFunction> chained = {};
};

// In the shortest forms, padded to a multiple of 4. Errors name the rule that is broken; `where` is the operation's
// offset into the code, `detail` the value. kUnsupported: what Windows does not know (SET_FPREG_LARGE).
[[nodiscard]] Expected<std::vector<std::byte>> encode(const InfoContent& content);
// The same of version 3, which encode() calls.
[[nodiscard]] Expected<std::vector<std::byte>> encode_v3(const InfoContent& content);
// What stands behind the codes in each version: the entry that this is chained to, or the handler and its data.
void append_chain_or_handler(const InfoContent& content, std::vector<std::byte>& to);

// The bytes that encode() writes without handler data, of a version 1 or 2. Errors: an operation that cannot be read.
[[nodiscard]] Expected<InfoContent> decode(const UnwindInfo& info);

// How many 16-bit slots an operation fills in its shortest form.
[[nodiscard]] unsigned slots_of(const UnwindCode& code);

}  // namespace windlass::winx64
