// Functions of the own process by the unwind information of the images as they are mapped.
#include "walk/own/windows/modules.h"
#include "windlass/backtrace.h"
#include "winx64/exec.h"

namespace windlass {
Expected<OwnFunction> own_function(std::uint64_t pc) {
  const walk::OwnImage* image = walk::find_own_image(pc);
  if (image == nullptr) return fail(ErrorCode::kNotFound, "address lies in no module", pc);
  const winx64::Functions& functions = image->functions();
  const auto rank = functions.table().last_at_or_before(static_cast<std::uint32_t>(pc - image->base()));
  const auto found = functions.find(static_cast<std::uint32_t>(pc - image->base()));
  if (!rank || !found) return fail(ErrorCode::kNotFound, "no function table entry covers the address", pc);
  const auto entry = winx64::primary(functions, *found);
  const auto info = entry ? winx64::info_of(functions, *entry) : fail(ErrorCode::kMalformed, "chain is broken", pc);
  if (!info) return std::unexpected(info.error());
  OwnFunction function;
  function.begin = image->base() + found->begin;
  function.end = image->base() + found->end;
  if (info->handler != 0) {
    function.lsda = image->base() + info->handler_data;
    function.personality = image->base() + info->handler;
  }
  function.fde = image->base() + functions.image().directory(image::PeDirectory::kException).rva +
                 functions.table().stored_index(*rank) * sizeof(winx64::RuntimeFunction);
  function.text_base = function.data_base = image->base();
  return function;
}

// Nothing is compiled ahead: unwind codes are found and executed in less time than a table would save.
void prepare() { walk::know_own_modules(); }

}  // namespace windlass
