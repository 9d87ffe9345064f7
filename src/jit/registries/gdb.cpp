// GDB's JIT interface: "JIT Compilation Interface" of its manual.
#include "jit/registries/gdb_object.h"

extern "C" {

// NOLINTBEGIN(bugprone-reserved-identifier): the names that debuggers look for
struct jit_code_entry {
  jit_code_entry* next_entry;
  jit_code_entry* prev_entry;
  const char* symfile_addr;
  std::uint64_t symfile_size;
};

struct jit_descriptor {
  std::uint32_t version;
  std::uint32_t action_flag;
  jit_code_entry* relevant_entry;
  jit_code_entry* first_entry;
};

// Ours, not those of another JIT compiler in the process: nobody says whose lock theirs are under. GDB looks in every
// object file. Weak, so that a program with a copy of its own links; then they are the same, and calls of the two must
// not overlap.
[[gnu::weak, gnu::noinline]] void __jit_debug_register_code() { __asm__ volatile(""); }
[[gnu::weak]] jit_descriptor __jit_debug_descriptor = {1, 0, nullptr, nullptr};
// NOLINTEND(bugprone-reserved-identifier)
}

namespace windlass::registries {
namespace {

enum Action : std::uint32_t { kNothing, kRegister, kUnregister };

// Of all registrars.
std::mutex& list_lock() {
  static std::mutex lock;
  return lock;
}

void tell(Action action, jit_code_entry& entry) {
  __jit_debug_descriptor.relevant_entry = &entry;
  __jit_debug_descriptor.action_flag = action;
  __jit_debug_register_code();
  __jit_debug_descriptor.action_flag = kNothing;
  __jit_debug_descriptor.relevant_entry = nullptr;
}

class ObjectFile : public Published {
 public:
  explicit ObjectFile(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {
    const std::lock_guard guard(list_lock());
    entry_.symfile_addr = reinterpret_cast<const char*>(bytes_.data());
    entry_.symfile_size = bytes_.size();
    entry_.next_entry = __jit_debug_descriptor.first_entry;
    if (entry_.next_entry != nullptr) entry_.next_entry->prev_entry = &entry_;
    __jit_debug_descriptor.first_entry = &entry_;
    tell(kRegister, entry_);
  }
  ~ObjectFile() override {
    const std::lock_guard guard(list_lock());
    (entry_.prev_entry != nullptr ? entry_.prev_entry->next_entry : __jit_debug_descriptor.first_entry) =
        entry_.next_entry;
    if (entry_.next_entry != nullptr) entry_.next_entry->prev_entry = entry_.prev_entry;
    tell(kUnregister, entry_);
  }
  ObjectFile(const ObjectFile&) = delete;
  ObjectFile& operator=(const ObjectFile&) = delete;

 private:
  const std::vector<std::byte> bytes_;
  jit_code_entry entry_{};
};

class GdbRegistrar : public BatchRegistrar {
 private:
  Expected<std::unique_ptr<Published>> publish(std::span<const Function> functions,
                                               std::span<const Run> runs) override {
    auto object = make_object(functions, runs);
    if (!object) return Failure(object.error());
    return std::make_unique<ObjectFile>(std::move(*object));
  }
};

}  // namespace

Opened open_gdb() { return std::make_unique<GdbRegistrar>(); }

}  // namespace windlass::registries
