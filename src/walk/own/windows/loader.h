// The loader's news, which headers leave out: LdrRegisterDllNotification (documented, "subject to change"; there since
// Windows Vista) and LdrEnumerateLoadedModules. Both call back with the loader's lock held, so that between them
// nothing is missed.
#pragma once

#include <cstdint>

#include "windlass/function_ref.h"

namespace windlass::walk {

// `path`: UTF-16, as the loader has it.
using OnLoaded = void (*)(std::uint64_t base, const wchar_t* path, std::size_t path_length);
using OnUnloaded = void (*)(std::uint64_t base);

// Calls `loaded` for everything that is loaded and from then on for what comes, `unloaded` before something goes.
// Modules that come meanwhile may be told of twice. Until the process ends, or the module that contains this code goes.
void follow_loader(OnLoaded loaded, OnUnloaded unloaded);

}  // namespace windlass::walk
