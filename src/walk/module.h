// One module of an address space and its unwind information.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/mapped_file.h"
#include "formats/image/machine.h"
#include "lookup/sources/name_source.h"
#include "lookup/sources/stack_end.h"
#include "lookup/sources/unwind_source.h"
#include "walk/function_memo.h"
#include "windlass/walk.h"

namespace windlass::walk {

class CodeMemo;

// Where a module's owner wants kept what its code comes to when it is followed.
struct KeptCode {
  CodeMemo* memo = nullptr;  // null: nowhere. It outlives the module
  std::uint64_t code = 0;    // what the memo knows the code by
  std::uint64_t bias = 0;    // address in the process - address in that code
  bool changes = false;      // the code may, while it keeps its number
};

class Module {
 public:
  explicit Module(ModuleInfo info) : info_(std::move(info)) {}
  // Code made at run time. The source's numbering is the process's, whatever the bias that is kept. `names` may be
  // null.
  Module(ModuleInfo info, std::unique_ptr<sources::UnwindSource> source, std::shared_ptr<sources::NameSource> names)
      : info_(std::move(info)),
        bias_(0),
        generated_(true),
        names_(std::move(names)),
        source_(source.get()),
        loaded_(std::move(source)) {}
  // An image that does not come from a file: an ELF file put together again, or a PE image as it is mapped.
  Module(ModuleInfo info, std::vector<std::byte> image) : info_(std::move(info)), owned_(std::move(image)) {}
  // Read by a source that outlives it, and that others may use, too; `bias` is that of the source's numbering.
  // Allocates nothing.
  Module(ModuleInfo info, const sources::UnwindSource& source, std::uint64_t bias, image::CodeMachine machine = {},
         bool generated = false);

  // The same of the own process, without a path. `id`: see own_id(); 0 for none.
  Module(std::uint64_t id, std::uint64_t begin, std::uint64_t end, std::uint64_t bias,
         const sources::UnwindSource& source)
      : id_(id), bias_(0), own_(true), source_(&source) {
    info_.begin = begin;
    info_.end = end;
    info_.bias = bias;
  }

  [[nodiscard]] const ModuleInfo& info() const {
    const ModuleInfo* named = named_.load(std::memory_order_acquire);
    return named != nullptr ? *named : info_;
  }
  // False for what is found by address alone (own_modules.h).
  [[nodiscard]] bool has_range() const { return info_.end != 0; }
  // For a module of the own process that a walk entered without a name. Allocates. What info() gave before stays valid.
  void set_name(std::string path) const;
  ~Module();
  // A number that no other module of any space ever gets. 0: nothing may be kept about this module. That is a module of
  // the own process which cannot be told from another module loaded in its place.
  [[nodiscard]] std::uint64_t id() const { return id_; }
  void forget_id() { id_ = 0; }
  // For a module without an id whose source counts what it takes away: rows are kept until it has taken away anything.
  void keep_until_taken_away();
  // The number under which a row of this module is kept: id(), or a number that no module had while another row was in
  // force. Ask before reading the row. 0: the row may not be kept.
  [[nodiscard]] std::uint64_t rows_id() const {
    if (changing_ == 0) [[likely]]
      return id_;
    return rows_id_of_changing();
  }
  [[nodiscard]] static std::uint64_t next_id() {
    static constinit std::atomic<std::uint64_t> last = 0;
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  // The id by a number that no other module of the own process gets: next_id() never comes so far. So the first walk of
  // a process does not write to next_id()'s page.
  [[nodiscard]] static constexpr std::uint64_t own_id(std::uint64_t number) { return std::uint64_t{1} << 62 | number; }
  [[nodiscard]] const KeptCode& kept_code() const { return kept_code_; }
  void keep_code(const KeptCode& kept) { kept_code_ = kept; }
  // Loaded in the own process, and known from there.
  [[nodiscard]] bool is_own() const { return own_; }
  void set_own() { own_ = true; }
  // A program with gaps between its segments, in which other code may lie: that an address is in the range says little.
  [[nodiscard]] bool has_gaps() const { return has_gaps_; }
  void set_has_gaps() { has_gaps_ = true; }
  // Code made at run time, with rows or without: there is no file, and interpreters go on where analysis cannot follow.
  [[nodiscard]] bool generated() const { return generated_; }

  // As UnwindSource has them, but for addresses of the process; rows begin and end at such, too. The file is opened
  // when first needed (a lock), and never on a step of the own process.
  [[nodiscard]] Expected<void> row_at(std::uint64_t address, FrameRow& to) const;
  [[nodiscard]] Expected<sources::Function> function_at(std::uint64_t address) const;
  [[nodiscard]] Expected<sources::HandlerCall> unwind(const Memory& memory, std::uint64_t pac_mask,
                                                      const Registers& frame, Registers& caller,
                                                      SavedLocations& saved) const;
  // What was put together from memory in place of a file; empty: the file is there, or nothing is.
  [[nodiscard]] ByteView image_in_memory() const { return {owned_.data(), owned_.size()}; }
  [[nodiscard]] bool is_windows() const { return source().is_windows(); }
  [[nodiscard]] bool may_be_leaf(std::uint64_t address) const { return source().may_be_leaf(address - bias_); }
  [[nodiscard]] std::optional<Error> foreign_code(std::uint64_t address) const {
    return source().foreign_code(address - bias_);
  }
  [[nodiscard]] bool is_exact() const { return source().is_exact(); }
  [[nodiscard]] bool may_be_outermost(std::uint64_t address) const {
    return source().may_be_outermost(address - bias_);
  }
  // Is it code that a thread of this architecture can have called?
  [[nodiscard]] bool runs_on(Architecture architecture) const {
    (void)source();
    return machine_.runs_on(architecture);
  }
  [[nodiscard]] bool read_image(std::uint64_t address, void* to, std::size_t size) const;
  [[nodiscard]] std::uint64_t function_start(std::uint64_t address) const;
  // Names by the maker of the code; null: it has none.
  [[nodiscard]] sources::NameSource* names() const { return names_.get(); }
  // lookup/sources/stack_end.h
  [[nodiscard]] sources::EndProof end_proof(CodeAddress pc) const;
  // The entry point of the image; 0: it has none in this module.
  [[nodiscard]] std::uint64_t entry_point() const;
  // The row at an address by its whole function, which is followed once (whole_function.h). False: nothing is proved
  // there. For code of a file. Waits for other threads, and allocates.
  [[nodiscard]] bool row_of_whole_function(std::uint64_t address, const flow::CodeSource& code, FrameRow& row) const;

 private:
  [[nodiscard]] const sources::UnwindSource& source() const {
    const sources::UnwindSource* source = source_.load(std::memory_order_acquire);
    return source != nullptr ? *source : load();
  }
  const sources::UnwindSource& load() const;
  [[nodiscard]] std::unique_ptr<sources::UnwindSource> open() const;
  [[nodiscard]] std::uint64_t rows_id_of_changing() const;

  std::uint64_t id_ = next_id();
  std::uint64_t changing_ = 0;  // a number of its own among those that change; 0: it does not, or nothing is kept
  ModuleInfo info_;
  std::uint64_t bias_ = info_.bias;  // of the source's numbering
  KeptCode kept_code_;
  bool generated_ = false;
  bool own_ = false;
  bool has_gaps_ = false;
  std::shared_ptr<sources::NameSource> names_;
  mutable std::atomic<const ModuleInfo*> named_ = nullptr;
  mutable std::atomic<const sources::UnwindSource*> source_ = nullptr;  // null: not loaded yet
  mutable std::mutex lock_;
  mutable std::mutex functions_lock_;
  mutable FunctionMemo functions_;  // empty where a CodeMemo has them
  std::vector<std::byte> owned_;
  mutable MappedFile file_;
  mutable image::CodeMachine machine_;  // set before source_
  mutable std::unique_ptr<sources::UnwindSource> loaded_;
};

}  // namespace windlass::walk
