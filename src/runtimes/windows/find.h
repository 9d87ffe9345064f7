// Has a Windows process, under Wine, registered function tables for code in no image? By the list in its ntdll.dll.
#pragma once

#include <cstdint>
#include <memory>

#include "runtimes/runtime_code.h"
#include "windlass/walk.h"

namespace windlass::runtimes::windows {

// `base` where the image there is an ntdll.dll whose list is found.
[[nodiscard]] Expected<std::uint64_t> find_tables(const Memory& memory, std::uint64_t base);

// What is registered by the list of the image at an address, as long as anything is. Has no names. Keeps the memory.
[[nodiscard]] std::unique_ptr<Runtime> open(std::shared_ptr<const Memory> memory, std::uint64_t base);

}  // namespace windlass::runtimes::windows
