// Code in no image, as the system knows it: by the function tables that programs have registered.
#include <windows.h>

#include <atomic>
#include <cstring>
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

 private:
  // In place: ReadProcessMemory() is a call of the server under Wine. The memory stays, as a frame of the code is on
  // the stack.
  bool read_held(std::uint64_t address, void* to, std::size_t size) const override {
    constexpr DWORD kReadable = PAGE_READONLY | PAGE_READWRITE | PAGE_WRITECOPY | PAGE_EXECUTE_READ |
                                PAGE_EXECUTE_READWRITE | PAGE_EXECUTE_WRITECOPY;
    const auto* const from = reinterpret_cast<const void*>(address);
    MEMORY_BASIC_INFORMATION region;
    if (VirtualQuery(from, &region, sizeof region) == 0 || region.State != MEM_COMMIT ||
        (region.Protect & kReadable) == 0 || (region.Protect & PAGE_GUARD) != 0 ||
        address + size > reinterpret_cast<std::uint64_t>(region.BaseAddress) + region.RegionSize)
      return false;
    std::memcpy(to, from, size);
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
