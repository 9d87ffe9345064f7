// The versioned structs of the C interface, and the C++ types they stand for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "windlass/c/unwind_info.h"
#include "windlass/error.h"
#include "windlass/registers.h"
#include "windlass/target.h"
#include "windlass/walk.h"

namespace windlass::capi {

// The size of each struct when it was first published: the smallest that a caller may have been compiled with.
template <typename T>
inline constexpr std::size_t kFirstSize = 0;
template <>
inline constexpr std::size_t kFirstSize<windlass_error> = 288;
template <>
inline constexpr std::size_t kFirstSize<windlass_registers> = 376;
template <>
inline constexpr std::size_t kFirstSize<windlass_memory> = 32;
template <>
inline constexpr std::size_t kFirstSize<windlass_module> = 64;
template <>
inline constexpr std::size_t kFirstSize<windlass_code> = 32;
template <>
inline constexpr std::size_t kFirstSize<windlass_generated> = 72;
template <>
inline constexpr std::size_t kFirstSize<windlass_prologue> = 40;
template <>
inline constexpr std::size_t kFirstSize<windlass_registrar_options> = 32;
template <>
inline constexpr std::size_t kFirstSize<windlass_files> = 24;
template <>
inline constexpr std::size_t kFirstSize<windlass_refreshed> = 32;
template <>
inline constexpr std::size_t kFirstSize<windlass_thread> = 32;
template <>
inline constexpr std::size_t kFirstSize<windlass_options> = 24;
template <>
inline constexpr std::size_t kFirstSize<windlass_frame> = 80;
template <>
inline constexpr std::size_t kFirstSize<windlass_unwind_file> = 32;
template <>
inline constexpr std::size_t kFirstSize<windlass_unwind_function> = 72;
template <>
inline constexpr std::size_t kFirstSize<windlass_unwind_row> = 1232;

inline constexpr std::size_t kMaxStructSize = 4096;  // A larger `size` was never set.

template <typename T>
[[nodiscard]] bool sized(const T* value) {
  static_assert(kFirstSize<T> != 0 && sizeof(T) >= kFirstSize<T> && sizeof(T) <= kMaxStructSize);
  return value != nullptr && value->size >= kFirstSize<T> && value->size <= kMaxStructSize;
}

// Reads a caller's struct of any version. False for a wrong size, and if a member is set that this library does not
// know.
template <typename T>
[[nodiscard]] bool take(const T* from, T& to) {
  if (!sized(from)) return false;
  const auto* bytes = reinterpret_cast<const std::byte*>(from);
  for (std::size_t i = sizeof(T); i < from->size; ++i)
    if (bytes[i] != std::byte{0}) return false;
  to = T{};
  std::memcpy(&to, from, std::min(from->size, sizeof(T)));
  return true;
}

// Writes a caller's struct, which keeps its size. For a wrong size, writes nothing and returns false.
template <typename T>
[[nodiscard]] bool give(const T& from, T* to) {
  if (!sized(to)) return false;
  const std::size_t size = to->size;
  const std::size_t known = std::min(size, sizeof(T));
  std::memcpy(to, &from, known);
  if (size > known) std::memset(reinterpret_cast<std::byte*>(to) + known, 0, size - known);
  to->size = size;
  return true;
}

[[nodiscard]] windlass_status status_of(ErrorCode code);
// Writes `error` to `to`, and returns its status. If `to` is null or has a wrong size, writes nothing.
windlass_status report(const Error& error, windlass_error* to);
// The call is wrong; `what` is a literal.
windlass_status invalid(const char* what, windlass_error* to = nullptr);
// There is no memory for a handle.
windlass_status no_memory(windlass_error* to);

[[nodiscard]] bool is_architecture(std::uint32_t architecture);
[[nodiscard]] windlass_registers to_c(const Registers& registers);
// False for an unknown architecture.
[[nodiscard]] bool from_c(const windlass_registers& from, Registers& to);
[[nodiscard]] windlass_module to_c(const ModuleInfo& info);
// Null stands for the defaults. False: not set up.
[[nodiscard]] bool from_c(const windlass_files* from, FileSearch& to);

}  // namespace windlass::capi
