// Code in no image, as the system knows it: by the function tables that programs have registered.
#include <windows.h>

#include <atomic>
#include <new>

#include "base/static_storage.h"
#include "lookup/sources/function_tables.h"
#include "walk/own_modules.h"

namespace windlass::walk {
namespace {

// Asked anew each time: nobody tells when a table changes.
class SystemTables final : public sources::FunctionTables {
 public:
  constexpr SystemTables() = default;
  bool find(std::uint64_t address, sources::TableEntry& to) const override {
    DWORD64 base = 0;
    const RUNTIME_FUNCTION* entry = RtlLookupFunctionEntry(address, &base, nullptr);
    if (entry == nullptr) return false;
    to = {base, {entry->BeginAddress, entry->EndAddress, entry->UnwindData}};
    return true;
  }
};
constinit const StaticStorage<SystemTables> system_tables;

// All of it. Nothing is kept of its rows.
const Module& table_code() {
  static constinit std::atomic<const Module*> made = nullptr;
  alignas(Module) static std::byte storage[sizeof(Module)];
  if (const Module* code = made.load(std::memory_order_acquire); code != nullptr) return *code;
  auto* code = new (storage) Module(ModuleInfo{}, system_tables.value, 0, {}, true);
  code->forget_id();
  made.store(code, std::memory_order_release);
  return *code;
}

// While there is but one thread.
[[gnu::constructor(101)]] void make_table_code_early() { (void)table_code(); }

}  // namespace

const Module* find_own_table_code(std::uint64_t address) {
  sources::TableEntry entry;
  return system_tables.value.find(address, entry) ? &table_code() : nullptr;
}

}  // namespace windlass::walk
