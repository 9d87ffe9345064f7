#include "walk/own/modules.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "base/pages.h"
#include "walk/own/mapped_source.h"
#include "walk/own/memory.h"
#include "walk/own/never_unloaded.h"
#include "walk/own_modules.h"
#include "windlass/backtrace.h"

namespace windlass::walk {
namespace {

const std::byte* at(std::uint64_t address) { return reinterpret_cast<const std::byte*>(address); }

// The program headers of a loaded object, through the ELF header at its start. Empty where that is not mapped.
struct ProgramHeaders {
  const Elf64_Phdr* begin_ = nullptr;
  const Elf64_Phdr* end_ = nullptr;
  explicit ProgramHeaders(const LoadedObject& object) {
    const auto* header = reinterpret_cast<const Elf64_Ehdr*>(object.begin);
    if (object.end - object.begin < sizeof *header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_phentsize != sizeof(Elf64_Phdr) ||
        header->e_phoff + header->e_phnum * sizeof(Elf64_Phdr) > object.end - object.begin)
      return;
    begin_ = reinterpret_cast<const Elf64_Phdr*>(object.begin + header->e_phoff);
    end_ = begin_ + header->e_phnum;
  }
  [[nodiscard]] const Elf64_Phdr* begin() const { return begin_; }
  [[nodiscard]] const Elf64_Phdr* end() const { return end_; }
};

// Does something between the segments belong to none of them? Of libraries never: it is mapped without access.
[[gnu::hot]] bool has_gaps(const LoadedObject& object) {
  std::uint64_t behind = 0;  // the last segment
  for (const Elf64_Phdr& segment : ProgramHeaders(object)) {
    if (segment.p_type != PT_LOAD) continue;
    if (behind != 0 && segment.p_vaddr / kSmallestPage > (behind + kSmallestPage - 1) / kSmallestPage) return true;
    behind = segment.p_vaddr + segment.p_memsz;
  }
  return false;
}

// Not what can be written: programs may take the access from pages of their own variables.
bool is_constant(const LoadedObject& object, std::uint64_t address, std::size_t size) {
  for (const Elf64_Phdr& segment : ProgramHeaders(object)) {
    const std::uint64_t offset = address - (segment.p_vaddr + object.bias);
    const bool constant = segment.p_type == PT_LOAD ? (segment.p_flags & (PF_R | PF_W)) == PF_R
                                                    : segment.p_type == PT_GNU_RELRO;  // the linkage table's
    if (constant && offset < segment.p_memsz && size <= segment.p_memsz - offset) return true;
  }
  return false;
}

// Where GNU's build id is in the image, and how much of it counts; 0: it has none.
std::uint32_t find_build_id(const LoadedObject& object, std::uint64_t& where) {
  for (const Elf64_Phdr& segment : ProgramHeaders(object)) {
    if (segment.p_type != PT_NOTE || segment.p_memsz > 0x10000 || segment.p_align > 8) continue;
    const std::uint64_t align = segment.p_align == 8 ? 8 : 4;
    const std::uint64_t end = segment.p_memsz;
    for (std::uint64_t offset = 0; offset + sizeof(Elf64_Nhdr) <= end;) {
      const std::uint64_t note_at = object.bias + segment.p_vaddr + offset;
      Elf64_Nhdr note;
      std::memcpy(&note, at(note_at), sizeof note);
      const std::uint64_t name_end = sizeof note + ((std::uint64_t{note.n_namesz} + align - 1) & ~(align - 1));
      const std::uint64_t next = name_end + ((std::uint64_t{note.n_descsz} + align - 1) & ~(align - 1));
      if (next > end - offset) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
          std::memcmp(at(note_at + sizeof note), "GNU", 4) == 0 && note.n_descsz >= 8) {
        where = note_at + name_end;
        return std::min(note.n_descsz, kMaxBuildId);
      }
      offset += next;
    }
  }
  return 0;
}

// In one piece, so that the first walk of a process, which meets a few modules, touches few pages.
constinit struct {
  std::atomic<std::size_t> used;  // entries that are or have been in use
  OwnModule entries[OwnModules::kCapacity];
} table_of_modules;
auto& used = table_of_modules.used;
auto& entries = table_of_modules.entries;

constexpr std::uint16_t kIndexBits = 10;
constexpr std::uint16_t kGenerations = 62;  // tags are 1 + index + generation * kCapacity, all below kUncacheable
static_assert(OwnModules::kCapacity == 1u << kIndexBits);
static_assert(1 + (kGenerations + 1) * OwnModules::kCapacity < OwnModule::kUncacheable);

}  // namespace

std::span<const std::uint8_t> loaded_build_id(const LoadedObject& object) {
  std::uint64_t where = 0;
  const std::uint32_t size = find_build_id(object, where);
  return {reinterpret_cast<const std::uint8_t*>(where), size};
}

[[gnu::hot]] Expected<void> map_cfi(const LoadedObject& object, MappedCfi& cfi) {
  const std::uint64_t address = object.eh_frame_hdr;
  if (address == 0) return fail(ErrorCode::kNotFound, "module has no unwind information", object.begin);
  // Bounded by the module, not by the segment: the program headers are on a page of their own, and what is loaded and
  // runs is believed.
  auto header = dwarf::EhFrameHdr::parse(ByteView(at(address), object.end - address, address), address);
  if (!header) return Failure(header.error());
  if (header->table.empty()) return fail(ErrorCode::kUnsupported, ".eh_frame_hdr has no table", address);
  const std::uint64_t start = header->eh_frame_address;
  if (start < object.begin || start >= object.end)
    return fail(ErrorCode::kOutOfRange, ".eh_frame is outside its module", start);
  cfi.header = *header;
  cfi.eh_frame = {};
  cfi.eh_frame.bytes = ByteView(at(start), object.end - start, start);
  cfi.eh_frame.address = start;
  cfi.eh_frame.architecture = kOwnArchitecture;
  cfi.eh_frame.stop_at_terminator = true;
  return {};
}

[[gnu::hot]] bool OwnModule::is(const LoadedObject& object) const {
  if (!(object_ == object)) return false;
  if (tag() == kNeverUnloaded) return true;
  return build_id_size_ == 0 || std::memcmp(at(build_id_at_), build_id_, build_id_size_) == 0;
}

bool always_readable(std::uint64_t address, std::size_t size) {
  LoadedObject object;
  return find_loaded(address, object) && is_never_unloaded(object.begin) && is_constant(object, address, size);
}

[[gnu::hot]] const OwnModule* OwnModules::find(std::uint64_t address) {
  LoadedObject object;
  if (!find_loaded(address, object)) return nullptr;
  // As a write: a read before it would be a second page fault of the first walk.
  const std::size_t count = used.fetch_add(0, std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    const OwnModule& entry = entries[i];
    if (entry.state_.load(std::memory_order_acquire) == OwnModule::kReady && entry.is(object)) return &entry;
  }
  return enter(object);
}

[[gnu::hot]] const OwnModule* OwnModules::enter(const LoadedObject& object) {
  for (std::size_t i = 0; i < kCapacity; ++i) {
    OwnModule& entry = entries[i];
    std::uint32_t state = entry.state_.load(std::memory_order_acquire);
    // A half-made entry belongs to a thread on its way, or to the code this signal handler interrupted.
    if (state == OwnModule::kBusy) continue;
    if (state == OwnModule::kReady) {
      // Once all entries have been used, the place of a module that is gone.
      if (used.load(std::memory_order_relaxed) < kCapacity || entry.tag() == OwnModule::kNeverUnloaded) continue;
      LoadedObject now;
      if (find_loaded(entry.object_.begin, now) && now == entry.object_) continue;
    }
    if (!entry.state_.compare_exchange_strong(state, OwnModule::kBusy)) continue;
    fill(entry, i, object);
    entry.state_.store(OwnModule::kReady, std::memory_order_release);
    for (std::size_t count = used.load(); count <= i && !used.compare_exchange_weak(count, i + 1);) {}
    return &entry;
  }
  return nullptr;
}

[[gnu::hot]] void OwnModules::fill(OwnModule& entry, std::size_t index, const LoadedObject& object) {
  if (entry.module_ != nullptr) {  // of another module before
    std::destroy_at(entry.module_);
    ++entry.generation_;
    entry.prepared_.store(nullptr, std::memory_order_relaxed);  // leaked: a walker may be reading it
  }
  entry.object_ = object;
  const bool stays_loaded = is_never_unloaded(object.begin);
  entry.build_id_size_ = stays_loaded ? 0 : find_build_id(object, entry.build_id_at_);
  if (entry.build_id_size_ != 0) std::memcpy(entry.build_id_, at(entry.build_id_at_), entry.build_id_size_);
  entry.cfi_usable_ = map_cfi(object, *std::construct_at(&entry.cfi_)).has_value();
  std::uint16_t tag = OwnModule::kUncacheable;
  if (stays_loaded)
    tag = OwnModule::kNeverUnloaded;
  else if (entry.build_id_size_ != 0 && entry.generation_ <= kGenerations)
    tag = static_cast<std::uint16_t>(1 + index + entry.generation_ * kCapacity);
  entry.tag_.store(tag, std::memory_order_relaxed);
  const std::uint64_t number = index + std::uint64_t{entry.generation_} * kCapacity;
  entry.module_ = new (entry.place_) Module(tag == OwnModule::kUncacheable ? 0 : Module::own_id(number), object.begin,
                                            object.end, object.bias, mapped_source());
  if (stays_loaded && is_program(object) && has_gaps(object)) entry.module_->set_has_gaps();
}

void OwnModules::for_each(FunctionRef<void(const OwnModule&)> callback) {
  for (const OwnModule& entry : entries) {
    LoadedObject now;
    if (entry.state_.load(std::memory_order_acquire) == OwnModule::kReady && find_loaded(entry.object_.begin, now) &&
        now == entry.object_)
      callback(entry);
  }
}

const Module* find_own_module(std::uint64_t address) {
  const OwnModule* module = OwnModules::find(address);
  return module != nullptr ? &module->module() : nullptr;
}

void each_own_module(FunctionRef<void(const Module&)> callback) {
  OwnModules::for_each([&](const OwnModule& own) { callback(own.module()); });
}

bool read_own_image(std::uint64_t address, void* to, std::size_t size) {
  LoadedObject object;
  if (!find_loaded(address, object) || !is_constant(object, address, size)) return false;
  copy_own(address, to, size);
  return true;
}

bool own_module_has_code(std::uint64_t begin, std::uint64_t end) {
  struct Question {
    std::uint64_t begin, end;
  } question{begin, end};
  const auto ask = [](dl_phdr_info* info, std::size_t, void* context) {
    const auto& asked = *static_cast<const Question*>(context);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& segment = info->dlpi_phdr[i];
      const std::uint64_t address = info->dlpi_addr + segment.p_vaddr;
      if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0 && asked.begin < address + segment.p_memsz &&
          address < asked.end)
        return 1;
    }
    return 0;
  };
  return dl_iterate_phdr(ask, &question) != 0;
}

bool OwnModules::verify(std::uint16_t tag, std::uint64_t address) {
  if (tag == OwnModule::kNeverUnloaded) return true;
  if (tag == OwnModule::kUncacheable) return false;
  OwnModule& entry = entries[(tag - 1) % kCapacity];
  const auto holds = [&] {
    return entry.state_.load(std::memory_order_acquire) == OwnModule::kReady && entry.tag() == tag;
  };
  if (!holds()) return false;
  LoadedObject now;
  if (!find_loaded(address, now) || !entry.is(now)) return false;
  // And was not being given to another module meanwhile. A write, so that it is not done before the reads above.
  entry.state_.fetch_add(0, std::memory_order_acq_rel);
  return holds();
}

}  // namespace windlass::walk
