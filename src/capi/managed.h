// The handles of windlass_managed.h, and what the library's classes ask of a runtime, passed on to its callbacks.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "capi/handles.h"
#include "capi/structs.h"
#include "windlass/c/managed.h"
#include "windlass/managed/gc_roots.h"
#include "windlass/managed/suspension.h"

struct windlass_method : windlass::managed::Method {
  std::vector<windlass::managed::Clause> own_clauses;
  windlass::winarm64::RuntimeFunction own_entry;
  std::vector<std::byte> own_roots;
};

// What a walk shows.
struct windlass_crawl {
  const windlass::managed::CrawlFrame& frame;
  const windlass::Memory& memory;
};

struct windlass_llvm_stack_maps {
  windlass::managed::LlvmStackMaps maps;
};

namespace windlass::capi {

template <>
inline constexpr std::size_t kFirstSize<windlass_method_description> = 120;
template <>
inline constexpr std::size_t kFirstSize<windlass_runtime_callbacks> = 48;
template <>
inline constexpr std::size_t kFirstSize<windlass_managed_thread> = 56;
template <>
inline constexpr std::size_t kFirstSize<windlass_crawl_frame> = 88;
template <>
inline constexpr std::size_t kFirstSize<windlass_stack_map> = 56;
template <>
inline constexpr std::size_t kFirstSize<windlass_personality> = 72;
template <>
inline constexpr std::size_t kFirstSize<windlass_safe_points> = 40;

// False for a place of no kind that there is.
[[nodiscard]] bool from_c(const windlass_place& from, managed::FramePlace& to);
[[nodiscard]] windlass_crawl_frame to_c(const managed::CrawlFrame& frame);
[[nodiscard]] inline const windlass_method* to_c(const managed::Method* method) {
  return static_cast<const windlass_method*>(method);
}

class CallbackRuntime final : public managed::Runtime {
 public:
  explicit CallbackRuntime(const windlass_runtime_callbacks& callbacks) : callbacks_(callbacks) {}
  [[nodiscard]] const managed::Method* find(std::uint64_t pc) const override {
    return callbacks_.find(pc, callbacks_.user);
  }
  [[nodiscard]] std::uint64_t generation() const override {
    return callbacks_.generation != nullptr ? callbacks_.generation(callbacks_.user) : 0;
  }
  [[nodiscard]] bool is_object(std::uint64_t reference) const override {
    return callbacks_.is_object == nullptr || callbacks_.is_object(reference, callbacks_.user) != 0;
  }
  [[nodiscard]] std::uint64_t guard_value() const override { return callbacks_.guard_value; }
  [[nodiscard]] Expected<void> each_argument(const managed::CrawlFrame& frame, const Memory& memory,
                                             managed::RootSink sink) const override;

 private:
  windlass_runtime_callbacks callbacks_;
};

class CallbackPersonality final : public managed::Personality {
 public:
  explicit CallbackPersonality(const windlass_personality& callbacks) : callbacks_(callbacks) {}
  [[nodiscard]] bool catches(const managed::CrawlFrame& frame, const managed::Clause& clause,
                             const managed::Thrown& thrown) override;
  void trace(const managed::CrawlFrame& frame, const managed::Thrown& thrown) override;
  [[nodiscard]] std::uint64_t base(const managed::CrawlFrame& frame) const override;
  [[nodiscard]] managed::NativePolicy at_native(const managed::CrawlFrame& frame,
                                                const managed::Thrown& thrown) override;
  void notify_debugger(const managed::Thrown& thrown) override;
  void unhandled(const managed::Thrown& thrown) override;
  [[nodiscard]] std::uint64_t object_of_fault(int signal, std::uint64_t address) override;
  void failed(const Error& why, const managed::Thrown& thrown) override;
  bool make_room(std::uint64_t sp) override;

 private:
  windlass_personality callbacks_;
};

class CallbackSafePoints final : public managed::SafePoints {
 public:
  explicit CallbackSafePoints(const windlass_safe_points& callbacks) : callbacks_(callbacks) {}
  [[nodiscard]] bool is_safe_point(const managed::Method& method, std::uint64_t pc) const override {
    return callbacks_.is_safe_point(to_c(&method), pc, callbacks_.user) != 0;
  }
  [[nodiscard]] bool can_hijack(const managed::Method& method) const override {
    return callbacks_.can_hijack == nullptr || callbacks_.can_hijack(to_c(&method), callbacks_.user) != 0;
  }
  [[nodiscard]] bool returns_reference(const managed::Method& method) const override {
    return callbacks_.returns_reference != nullptr && callbacks_.returns_reference(to_c(&method), callbacks_.user) != 0;
  }
  void is_late(const managed::MutatorThread& thread, const Error& why) const override;

 private:
  windlass_safe_points callbacks_;
};

struct ThreadOfHandle : managed::MutatorThread {
  windlass_mutator* handle = nullptr;
};

}  // namespace windlass::capi

struct windlass_runtime : windlass::capi::Shell<windlass_runtime> {
  std::optional<windlass::capi::CallbackRuntime> runtime;
};

struct windlass_mutator : windlass::capi::Shell<windlass_mutator> {
  std::optional<windlass::capi::ThreadOfHandle> thread;
  std::optional<windlass::capi::CallbackPersonality> personality;
  windlass_runtime* runtime = nullptr;
  bool attached = false;
};

struct windlass_suspender : windlass::capi::Shell<windlass_suspender> {
  std::optional<windlass::capi::CallbackSafePoints> safe_points;
  std::optional<windlass::managed::Suspender> suspender;
  std::unique_ptr<const windlass::managed::Stopped> stopped;  // made and ended by who stops
  windlass_runtime* runtime = nullptr;
};
