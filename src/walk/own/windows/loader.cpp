#include "walk/own/windows/loader.h"

#include <windows.h>
#include <winternl.h>

namespace windlass::walk {
namespace {

// LDR_DLL_NOTIFICATION_DATA: the same for both reasons.
struct NotificationData {
  ULONG flags;
  const UNICODE_STRING* full_name;
  const UNICODE_STRING* base_name;
  void* base;
  ULONG size;
};
constexpr ULONG kReasonLoaded = 1, kReasonUnloaded = 2;

using Notification = void(CALLBACK*)(ULONG reason, const NotificationData* data, void* context);
using Enumeration = void(CALLBACK*)(const LDR_DATA_TABLE_ENTRY* module, void* context, BOOLEAN* stop);
using RegisterNotification = NTSTATUS(NTAPI*)(ULONG flags, Notification, void* context, void** cookie);
using UnregisterNotification = NTSTATUS(NTAPI*)(void* cookie);
using EnumerateModules = NTSTATUS(NTAPI*)(ULONG flags, Enumeration, void* context);

OnLoaded on_loaded;
OnUnloaded on_unloaded;
void* cookie;

template <typename F>
F from_ntdll(const char* name) {
  return reinterpret_cast<F>(reinterpret_cast<void*>(GetProcAddress(GetModuleHandleW(L"ntdll.dll"), name)));
}

void CALLBACK notified(ULONG reason, const NotificationData* data, void*) {
  const auto base = reinterpret_cast<std::uint64_t>(data->base);
  if (reason == kReasonLoaded) on_loaded(base, data->full_name->Buffer, data->full_name->Length / sizeof(wchar_t));
  if (reason == kReasonUnloaded) on_unloaded(base);
}

void CALLBACK enumerated(const LDR_DATA_TABLE_ENTRY* module, void*, BOOLEAN* stop) {
  on_loaded(reinterpret_cast<std::uint64_t>(module->DllBase), module->FullDllName.Buffer,
            module->FullDllName.Length / sizeof(wchar_t));
  *stop = FALSE;
}

// Where this code is in a DLL that goes, it must not be called any more.
[[gnu::destructor]] void stop_following() {
  const auto unregister = from_ntdll<UnregisterNotification>("LdrUnregisterDllNotification");
  if (cookie != nullptr && unregister != nullptr) unregister(cookie);
}

}  // namespace

void follow_loader(OnLoaded loaded, OnUnloaded unloaded) {
  on_loaded = loaded;
  on_unloaded = unloaded;
  if (const auto notify = from_ntdll<RegisterNotification>("LdrRegisterDllNotification"))
    notify(0, notified, nullptr, &cookie);
  if (const auto enumerate = from_ntdll<EnumerateModules>("LdrEnumerateLoadedModules"))
    enumerate(0, enumerated, nullptr);
}

}  // namespace windlass::walk
