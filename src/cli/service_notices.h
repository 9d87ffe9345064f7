// What a service tells the manager that started it: sd_notify(3), without its library.
#pragma once

#include <string_view>

namespace windlass::cli {

// "READY=1". Nothing happens without $NOTIFY_SOCKET.
void notify_manager(std::string_view state);
// Whether the manager wants "WATCHDOG=1" from this process.
[[nodiscard]] bool wants_watchdog();

}  // namespace windlass::cli
