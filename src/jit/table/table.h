// The writer of a code manager's table.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/static_mutex.h"
#include "jit/table/core_part.h"
#include "jit/table/pool.h"
#include "jit/table/shapes.h"
#include "os/descriptor.h"
#include "runtimes/manager/read.h"
#include "windlass/jit/code_manager.h"
#include "windlass_code_layout.h"

namespace windlass {

class CodeManager::Table {
 public:
  [[nodiscard]] static Expected<std::shared_ptr<Table>> create(std::uint64_t begin, std::uint64_t end,
                                                               const CodeManagerOptions& options);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  Expected<void> update(std::span<const std::uint64_t> removed, std::span<const GeneratedFunction> added);
  [[nodiscard]] std::size_t functions() const { return __atomic_load_n(&header().functions, __ATOMIC_RELAXED); }
  [[nodiscard]] const CodeManagerReader& reader() const { return reader_; }
  [[nodiscard]] int fd() const { return file_.get(); }

 private:
  Table(os::Descriptor file, std::byte* bytes, const wl_code_header& header, const CodeManagerReader& reader,
        const CodeManagerOptions& options);

  // A record as it is written, and its name.
  struct Entry {
    wl_code_record record;
    std::uint32_t name;
  };
  // A place for a block's run.
  struct Room {
    std::uint32_t block, first, records;
  };

  [[nodiscard]] wl_code_header& header() const { return *reinterpret_cast<wl_code_header*>(bytes_); }
  [[nodiscard]] wl_code_block& block(std::uint32_t number) const { return blocks_[number]; }
  [[nodiscard]] const wl_code_record& record(std::uint32_t number) const { return records_[number]; }
  [[nodiscard]] wl_code_past& past(std::uint64_t number) const { return past_[number % header().past_count]; }

  // ---- what is there ----
  [[nodiscard]] manager::MappedBytes mapped() const { return {bytes_, header().size}; }
  [[nodiscard]] std::uint32_t find(std::uint32_t offset) const;
  [[nodiscard]] manager::Run run(std::uint32_t block) const;
  [[nodiscard]] std::uint32_t reaching_into(std::uint32_t block) const;
  [[nodiscard]] std::uint32_t overlapped(const wl_code_record& function) const;
  [[nodiscard]] static std::uint32_t map_of(std::span<const Entry> run);
  void copy_run(std::uint32_t block, std::vector<Entry>& to) const;

  // ---- changes ----
  Expected<void> remove(std::span<const std::uint64_t> addresses);
  Expected<void> add(std::span<const GeneratedFunction> functions);
  Expected<void> check(std::span<const GeneratedFunction> functions);
  Expected<void> fill(std::span<const GeneratedFunction> functions);
  Expected<void> take_rooms();
  Expected<std::uint32_t> add_name(std::string_view name);
  Expected<std::uint32_t> shape_of(const GeneratedFunction& function);
  template <typename Take>
  auto make_room(Take&& take);
  void take_out(std::uint32_t number, std::uint64_t time);
  void remember(const Entry& function, std::uint64_t time);
  void forget_oldest();
  void set_run(std::uint32_t block, std::uint32_t first, std::span<const Entry> run);
  [[nodiscard]] std::optional<std::uint32_t> take_records(std::uint32_t count);
  void give_back(std::uint32_t shape, std::uint32_t name);
  void recycle();
  void show_in_core_files();

  os::Descriptor file_;
  std::byte* bytes_;
  wl_code_block* blocks_;
  wl_code_record* records_;
  std::uint32_t* name_of_;
  wl_code_past* past_;
  CodeManagerReader reader_;
  pid_t owner_;

  StaticMutex lock_;  // of writers; all that follows
  manager::Shapes shapes_;
  manager::Pool names_;
  manager::Pool free_records_;
  std::uint32_t capacity_;  // functions
  bool keeps_past_;
  // Runs that no block leads to any more; they can be used again when readers have been told.
  std::vector<Room> left_;
  // Of the update under way.
  std::vector<Entry> added_;
  std::vector<std::uint64_t> order_;  // of their begins: (begin, index in added_)
  std::vector<Room> rooms_;
  std::vector<Entry> run_;
  // Shapes of rows given in the same update: of many functions with the same rows only the first one's are looked at.
  struct Known {
    const void* description = nullptr;
    std::size_t count = 0;
    std::uint64_t size = 0;  // of the function
    std::uint64_t update = 0;
    std::uint32_t shape = 0;
  };
  std::vector<Known> known_;  // a power of 2
  std::uint64_t update_ = 0;
  // What core files have of the sections that grow.
  struct CoreParts {
    manager::CorePart records, name_of, shapes, names, past;
  } core_;
};

}  // namespace windlass
