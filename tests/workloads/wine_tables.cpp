// A Windows program with a thread for each way to register generated code. Each thread prints one line, "NAME PC...",
// its stack as the system itself unwinds it through that code, and waits for ever. Two more threads spin in such code.
#define WIN32_LEAN_AND_MEAN
#define _WIN32_WINNT 0x0a00
#include <windows.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))

static CRITICAL_SECTION printing;

extern "C" NOINLINE void publish_and_wait(const char* name) {
  void* pcs[512];
  const unsigned count = RtlCaptureStackBackTrace(0, 512, pcs, nullptr);
  EnterCriticalSection(&printing);
  std::printf("%s", name);
  for (unsigned i = 0; i < count && pcs[i] != nullptr; ++i) std::printf(" %p", pcs[i]);
  std::printf("\n");
  std::fflush(stdout);
  LeaveCriticalSection(&printing);
  Sleep(INFINITE);
}

static volatile bool go_on = true;

struct Heap {
  static constexpr DWORD kSize = 1 << 20, kCode = 0x1000, kApart = 0x200, kFunctions = 10, kSpin = 0x8000;
  std::uint8_t* const base =
      static_cast<std::uint8_t*>(VirtualAlloc(nullptr, kSize, MEM_RESERVE | MEM_COMMIT, PAGE_EXECUTE_READWRITE));
  std::vector<RUNTIME_FUNCTION> entries;

  void put(DWORD at, std::initializer_list<int> bytes) {
    for (const int byte : bytes) base[at++] = static_cast<std::uint8_t>(byte);
  }
  // Functions that call each other, the last one `target`. With frames of all sizes and an entry for each, or framed
  // by rbp. They are called once, and never return.
  std::uint64_t chain(std::uint64_t target, bool framed) {
    for (DWORD i = 0; i < kFunctions; ++i) {
      const DWORD at = kCode + i * kApart, frame = framed ? 32 : 32 + 16 * (i * 7 % 40);
      std::uint8_t* call = base + at;
      if (framed) {  // push rbp; mov rbp, rsp; sub rsp, 32
        put(at, {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20});
        call += 8;
      } else {  // push rbx; sub rsp, frame
        put(at, {0x53, 0x48, 0x81, 0xec});
        std::memcpy(call + 4, &frame, 4);
        call += 8;
        const DWORD info = 0x100 + 16 * i;
        put(info, {1, 8, 3, 0, 8, 1, static_cast<int>(frame / 8 & 255), static_cast<int>(frame / 8 >> 8), 1, 0x30});
        entries.push_back({at, at + 0x40, {info}});
      }
      // mov rax, target; call rax; ud2
      const std::uint8_t rest[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0x0f, 0x0b};
      std::memcpy(call, rest, sizeof rest);
      std::memcpy(call + 2, &target, 8);
      target = reinterpret_cast<std::uint64_t>(base + at);
    }
    return target;
  }
  // A function of its own kind behind the chain: pushes, pops and epilogues in a loop for as long as go_on says.
  std::uint64_t spin() {
    const DWORD at = kSpin;
    // push rbx; push rsi; sub rsp, 40; mov rbx, &go_on; cmp byte [rbx], 0; je end; call inner; jmp -12; end: add rsp,
    // 40
    put(at, {0x53, 0x56, 0x48, 0x83, 0xec, 0x28, 0x48, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0});
    const auto address = reinterpret_cast<std::uint64_t>(&go_on);
    std::memcpy(base + at + 8, &address, 8);
    put(at + 16,
        {0x80, 0x3b, 0x00, 0x74, 0x07, 0xe8, 0xe6, 0, 0, 0, 0xeb, 0xf4, 0x48, 0x83, 0xc4, 0x28, 0x5e, 0x5b, 0xc3});
    put(0x300, {1, 6, 3, 0, 6, 0x42, 2, 0x60, 1, 0x30});
    entries.push_back({at, at + 35, {0x300}});
    // inner: push rdi; push r12; sub rsp, 24; add rsp, 24; pop r12; pop rdi; ret
    put(at + 0x100, {0x57, 0x41, 0x54, 0x48, 0x83, 0xec, 0x18, 0x90, 0x48, 0x83, 0xc4, 0x18, 0x41, 0x5c, 0x5f, 0xc3});
    put(0x320, {1, 7, 3, 0, 7, 0x22, 3, 0xc0, 1, 0x70});
    entries.push_back({at + 0x100, at + 0x110, {0x320}});
    return reinterpret_cast<std::uint64_t>(base + at);
  }
  void describe_all() {  // as the front of V8's heaps
    put(0x100, {1, 4, 2, 5, 4, 3, 1, 0x50});
    entries.push_back({kCode, kSize, {0x100}});
  }
};

using Function = std::uint64_t (*)(const char*);
static Heap by_table, by_growable, by_front, by_callback, spinning;

static RUNTIME_FUNCTION* CALLBACK find_entry(DWORD64 pc, void* heap) {
  auto& entries = static_cast<Heap*>(heap)->entries;
  const DWORD64 rva = pc - reinterpret_cast<DWORD64>(static_cast<Heap*>(heap)->base);
  for (RUNTIME_FUNCTION& entry : entries)
    if (rva >= entry.BeginAddress && rva < entry.EndAddress) return &entry;
  return nullptr;
}

template <typename F>
static F from_ntdll(const char* name) {
  return reinterpret_cast<F>(reinterpret_cast<void*>(GetProcAddress(GetModuleHandleA("ntdll.dll"), name)));
}

struct Start {
  const char* name;
  std::uint64_t code;
};
extern "C" DWORD WINAPI generated_thread(void* start) {
  const auto* at = static_cast<const Start*>(start);
  return static_cast<DWORD>(reinterpret_cast<Function>(at->code)(at->name) + 1);
}

int main() {
  InitializeCriticalSection(&printing);
  std::printf("process %lx\n", GetCurrentProcessId());
  std::printf("spin %p\n", static_cast<void*>(spinning.base + Heap::kSpin));
  const auto publish = reinterpret_cast<std::uint64_t>(publish_and_wait);
  static Start starts[] = {{"table", by_table.chain(publish, false)},
                           {"growable", by_growable.chain(publish, false)},
                           {"front", by_front.chain(publish, true)},
                           {"callback", by_callback.chain(publish, false)},
                           {"", spinning.spin()}};
  by_front.describe_all();
  const auto base = [](const Heap& heap) { return reinterpret_cast<DWORD64>(heap.base); };
  const auto count = [](const Heap& heap) { return static_cast<DWORD>(heap.entries.size()); };
  RtlAddFunctionTable(by_table.entries.data(), count(by_table), base(by_table));
  RtlAddFunctionTable(by_front.entries.data(), count(by_front), base(by_front));
  RtlAddFunctionTable(spinning.entries.data(), count(spinning), base(spinning));
  using AddGrowable = DWORD(NTAPI*)(void**, RUNTIME_FUNCTION*, DWORD, DWORD, DWORD64, DWORD64);
  void* growable = nullptr;
  from_ntdll<AddGrowable>("RtlAddGrowableFunctionTable")(&growable, by_growable.entries.data(), count(by_growable),
                                                         count(by_growable), base(by_growable),
                                                         base(by_growable) + Heap::kSize);
  RtlInstallFunctionTableCallback(base(by_callback) | 3, base(by_callback), Heap::kSize, find_entry, &by_callback,
                                  L"C:\\nowhere\\helper.dll");
  for (Start& start : starts) CreateThread(nullptr, 0, generated_thread, &start, 0, nullptr);
  const HANDLE suspended = CreateThread(nullptr, 0, generated_thread, &starts[4], 0, nullptr);
  Sleep(200);
  SuspendThread(suspended);
  publish_and_wait("main");
}
