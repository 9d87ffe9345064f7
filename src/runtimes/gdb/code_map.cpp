#include "runtimes/gdb/code_map.h"

#include <optional>
#include <utility>

#include "runtimes/memory_reader.h"

namespace windlass::runtimes::gdb {
namespace {

constexpr std::uint32_t kVersion = 1;

struct Descriptor {
  std::uint32_t version, action;
  std::uint64_t relevant, first;
};

std::optional<Entry> read_entry(const Memory& memory, std::uint64_t address) {
  struct Stored {
    std::uint64_t next, previous, file, size;
  };
  const auto stored = address != 0 ? read_value<Stored>(memory, address) : std::nullopt;
  if (!stored) return std::nullopt;
  return Entry{address, stored->next, stored->previous, stored->file, stored->size};
}

}  // namespace

std::uint64_t CodeMap::first(const Memory& memory) const {
  const auto descriptor = read_value<Descriptor>(memory, descriptor_);
  return descriptor && descriptor->version == kVersion ? descriptor->first : 0;
}

bool CodeMap::is_still(const Memory& memory, const Entry& entry) const {
  const auto now = read_entry(memory, entry.address);
  if (!now || !now->is_still(entry)) return false;
  if (now->previous == 0) return first(memory) == entry.address;
  const auto previous = read_entry(memory, now->previous);
  return previous && previous->next == entry.address;
}

void CodeMap::read_list(const Memory& memory) {
  std::map<std::uint64_t, Registered> before = std::exchange(entries_, {});
  by_code_.clear();
  std::size_t bytes = 0;
  auto entry = read_entry(memory, first(memory));
  for (; entry && entries_.size() < kMaxEntries && !entries_.contains(entry->address);
       entry = read_entry(memory, entry->next)) {
    Registered& registered = entries_[entry->address];
    const auto known = before.find(entry->address);
    if (known != before.end() && entry->is_still(known->second.entry)) {
      registered = std::move(known->second);
    } else {
      registered.entry = *entry;
      if (bytes < kMaxBytes)
        if (auto object = Object::read(memory, entry->file, entry->size)) registered.object = std::move(*object);
    }
    if (registered.object == nullptr) continue;
    bytes += registered.object->bytes();
    for (const AddressRange& code : registered.object->code()) by_code_[code.end] = entry->address;
  }
}

const Registered* CodeMap::known_at(std::uint64_t address) const {
  const auto found = by_code_.upper_bound(address);
  if (found == by_code_.end()) return nullptr;
  const Registered& registered = entries_.at(found->second);
  return registered.object->code_at(address) != nullptr ? &registered : nullptr;
}

Expected<Registered> CodeMap::find(const Memory& memory, std::uint64_t address) {
  const Registered* found = known_at(address);
  if (found == nullptr || !is_still(memory, found->entry)) {
    read_list(memory);
    found = known_at(address);
  }
  if (found == nullptr) return fail(ErrorCode::kNotFound, "nothing registered with GDB has the address", address);
  return *found;
}

}  // namespace windlass::runtimes::gdb
