// An unwind of Windows x64 codes as sources give it.
#pragma once

#include "formats/winx64/read.h"
#include "formats/winx64/registers.h"
#include "formats/winx64/unwound.h"
#include "lookup/sources/unwind_source.h"

namespace windlass::sources {

// `saved` comes in as the callee's. The handler and its data are RVAs.
[[nodiscard]] inline HandlerCall take(const winx64::Unwound& unwound, const winx64::SavedAddresses& addresses,
                                      Registers& caller, SavedLocations& saved) {
  caller = unwound.caller;
  for (unsigned number = 0; number < 16; ++number)
    if (addresses.integer[number] != 0) saved.set(caller, winx64::dwarf_number(number), addresses.integer[number]);
  saved.set(caller, Registers::pc_number(Architecture::kX86_64), addresses.return_address);
  return {unwound.establisher, unwound.handler, unwound.handler_data, (unwound.handler_flags & winx64::kEhandler) != 0,
          (unwound.handler_flags & winx64::kUhandler) != 0};
}

}  // namespace windlass::sources
