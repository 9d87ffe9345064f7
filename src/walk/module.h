// One module of an address space and its unwind information.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "dwarf/eh_frame_hdr.h"
#include "image/elf.h"
#include "image/function_symbols.h"
#include "image/mapped_file.h"
#include "walk/row_finder.h"
#include "windlass/walk.h"

namespace windlass::walk {

struct LoadedObject;

class Module {
 public:
  explicit Module(ModuleInfo info, bool generated = false) : info_(std::move(info)), generated_(generated) {}
  Module(ModuleInfo info, std::vector<std::byte> image) : info_(std::move(info)), owned_(std::move(image)) {}
  // Of the own process: everything is read where it is mapped. Allocates nothing.
  explicit Module(const LoadedObject& object);

  [[nodiscard]] const ModuleInfo& info() const {
    const ModuleInfo* named = named_.load(std::memory_order_acquire);
    return named != nullptr ? *named : info_;
  }
  // For a module of the own process that a walk entered without a name. Allocates. What info() gave before stays valid.
  void set_name(std::string path) const;
  ~Module();
  // A number that no other module of any space ever gets, or 0: nothing may be kept about it (a module of the own
  // process that cannot be told from another one loaded in its place).
  [[nodiscard]] std::uint64_t id() const { return id_; }
  void forget_id() { id_ = 0; }
  // Code made at run time: there is no file and no unwind information.
  [[nodiscard]] bool generated() const { return generated_; }

  // The row in force at an address of the process, the row in the module's own numbering. kNotFound where nothing
  // covers it; otherwise what is wrong with the file or the record. Thread-safe; reads the file when first called. With
  // an .eh_frame_hdr it takes neither lock nor memory; rows found only elsewhere (.debug_frame) or without one need
  // both, and an index made when first needed.
  [[nodiscard]] Expected<FrameRow> row_at(std::uint64_t address) const;

  // Bytes of the module's file at an address of the process, as loaded before relocation.
  [[nodiscard]] bool read_image(std::uint64_t address, void* to, std::size_t size) const;

  // Where the function that contains an address of the process starts, as symbols tell; 0: not known. Reads the symbol
  // tables when first called (a lock).
  [[nodiscard]] std::uint64_t function_start(std::uint64_t address) const;
  // ELF's e_entry in the process; 0: none.
  [[nodiscard]] std::uint64_t entry_point() const;

 private:
  // The section that .eh_frame_hdr indexes.
  struct Indexed {
    dwarf::EhFrameHdr header;
    dwarf::CfiSection section;
  };

  [[nodiscard]] static std::uint64_t next_id() {
    static constinit std::atomic<std::uint64_t> last = 0;
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  void load() const;
  void load_file() const;
  void find_index() const;
  [[nodiscard]] Expected<FrameRow> mapped_row_at(std::uint64_t address) const;

  std::uint64_t id_ = next_id();
  ModuleInfo info_;
  mutable std::atomic<const ModuleInfo*> named_ = nullptr;
  bool generated_ = false;
  std::vector<std::byte> owned_;  // the image, where it does not come from a file
  bool mapped_ = false;           // of the own process
  mutable std::mutex lock_;
  mutable std::atomic<bool> loaded_ = false;
  mutable image::MappedFile file_;
  mutable std::unique_ptr<image::ElfImage> image_;
  mutable std::optional<Indexed> index_;
  mutable bool rows_made_ = false;
  mutable std::unique_ptr<RowFinder> rows_;
  mutable std::once_flag symbols_read_;
  mutable image::FunctionSymbols symbols_;
  mutable Error error_{ErrorCode::kNotFound, "module has no unwind information"};
};

}  // namespace windlass::walk
