// Input: a PE image of x64. Every entry's information is read, its handler too, it is lowered to rows, and the
// unwinder is run from addresses in it, over a stack of which every other page is readable.
#include <cstring>

#include "check.h"
#include "formats/winx64/exec.h"
#include "formats/winx64/handlers.h"
#include "formats/winx64/lower.h"
#include "support/known_unwind.h"

namespace {

using namespace windlass;

struct Stack {
  bool read(std::uint64_t address, void* to, std::size_t size) const {
    if ((address >> 12 & 1) != 0) return false;
    const std::uint64_t value = address * 0x9e37'79b9'7f4a'7c15;
    std::memcpy(to, &value, size < sizeof value ? size : sizeof value);
    return true;
  }
};

void read_entry(const image::PeImage& image, const winx64::RuntimeFunction& function) {
  const auto info = winx64::read_unwind_info(image, function.info);
  if (!info) return;
  FUZZ_CHECK(info->codes.size() == 2U * info->slot_count);
  if (info->version < 3) {
    unsigned slots = 0;
    const auto ok = winx64::each_code(*info, [&](const winx64::UnwindCode& code) {
      slots += code.slots;
      FUZZ_CHECK(!operation_name(code.operation).empty());
    });
    if (ok) FUZZ_CHECK(slots == info->slot_count);
    winx64::each_epilog(*info, function.end, [](const winx64::Epilog&) {});
  } else if (const auto payload = winx64::read_payload_v3(*info)) {
    const auto check = [](const winx64::UnwindCode& code) { FUZZ_CHECK(!operation_name(code.operation).empty()); };
    (void)winx64::each_descriptor(payload->pool, 0, info->operation_count, payload->ip_offsets,
                                  info->has(winx64::kLarge), check);
    for (unsigned i = 0; i < payload->epilog_count; ++i) {
      const winx64::EpilogV3& epilog = payload->epilogs[i];
      (void)winx64::each_descriptor(payload->pool, epilog.first_op, epilog.operation_count, epilog.ip_offsets,
                                    epilog.large, check);
    }
  }
  for (const std::string_view name :
       {"", "__C_specific_handler", "__CxxFrameHandler3", "__GSHandlerCheck_EH4", "__GSHandlerCheck_SEH"}) {
    const auto handler = winx64::read_handler(image, name, function, *info);
    if (handler) FUZZ_CHECK(handler->scopes.size() == 16ULL * handler->scope_count);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto image = image::PeImage::parse(ByteView(reinterpret_cast<const std::byte*>(data), size));
  if (!image) return 0;
  const winx64::Functions functions(*image);
  Registers frame(Architecture::kX86_64);
  for (unsigned i = 0; i < 16; ++i) frame.set(i, 0x10000 + 0x100 * i);
  const image::PeSymbols symbols;
  for (std::size_t i = 0; i < functions.size() && i < 256; ++i) {
    const winx64::RuntimeFunction function = functions.stored(i);
    read_entry(*image, function);
    std::uint64_t covered = function.begin;
    const auto row = [&](const FrameRow& found) {
      FUZZ_CHECK(found.begin >= covered && found.begin < found.end && found.end <= function.end);
      covered = found.end;
    };
    winx64::lower(functions, function, row, [](const Error&) {});
    (void)winx64::function_name(*image, symbols, function.begin);
    for (const std::uint32_t rva : {function.begin, function.begin + 1, function.begin + 7, function.end - 1}) {
      for (const bool is_return : {false, true}) {
        const std::uint64_t pc = image->image_base() + rva;
        frame.set_pc(is_return ? CodeAddress::return_address(pc) : CodeAddress::instruction(pc));
        winx64::Unwound unwound;
        winx64::SavedAddresses saved;
        const auto ok = winx64::virtual_unwind(functions, image->image_base(), Stack(), frame, unwound, &saved);
        if (ok) FUZZ_CHECK(unwound.caller.has_sp());
        FUZZ_CHECK(test::same_when_known(functions, image->image_base(), Stack(), frame));
      }
    }
  }
  return 0;
}
