// What the agent does for one process, in the small: reads /proc/PID/maps, compiles every file's table once, publishes.
// For tests and benchmarks of the kernel side that should not depend on the agent.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "lookup/table/compile.h"
#include "os/proc_file.h"
#include "os/proc_maps.h"
#include "profiler/kernel/kernel_side.h"
#include "runtimes/published_code.h"

namespace windlass::testing {

class ProcessPublisher {
 public:
  explicit ProcessPublisher(profiler::KernelSide& side) : side_(side) {}

  // Called with every table loaded.
  std::function<void(std::uint32_t module, const table::UnwindTable& table)> on_table;

  // False: code managers' tables are not there for the kernel side, so that it hands over raw stacks.
  bool shows_managers = true;

  // The mappings last published, for checks.
  [[nodiscard]] const std::vector<wl_mapping>& mappings() const { return mappings_; }
  [[nodiscard]] std::uint64_t table_bytes() const { return table_bytes_; }
  [[nodiscard]] std::uint64_t table_rows() const { return table_rows_; }

  bool publish(std::uint32_t pid, std::uint64_t epoch = 0) {
    mappings_.clear();
    published_.clear();
    const auto maps = os::parse_proc_maps(os::read_proc_file("/proc/" + std::to_string(pid) + "/maps"));
    for (const os::ProcMap& map : maps)
      if (manager::shows_published(map))
        if (auto code = manager::open_published(static_cast<pid_t>(pid), 0, map))
          manager::add(published_, std::move(*code));
    for (const os::ProcMap& map : maps)
      if (map.executable && map.begin >> 63 == 0) add(pid, map.begin, map.end, map.offset, map.path);
    return side_.publish(pid, mappings_, epoch).has_value();
  }

 private:
  static constexpr std::uint64_t kNowhere = 8;

  struct Module {
    std::uint32_t id = 0;
    std::unique_ptr<MappedFile> file;
    std::unique_ptr<image::ElfImage> image;
    std::vector<std::byte> copy;
  };

  void add(std::uint32_t pid, std::uint64_t begin, std::uint64_t end, std::uint64_t offset, const std::string& path) {
    const bool vdso = path == "[vdso]";
    if (!vdso && !path.starts_with('/')) {
      manager::cut_by(published_, begin, end, [&](std::uint64_t from, std::uint64_t to, const auto& code) {
        wl_mapping mapping{from, to, 0, 0, WL_MAPPING_GENERATED};
        if (code) mapping.kind = WL_MAPPING_MANAGED, mapping.table = shows_managers ? code->address() : kNowhere;
        mappings_.push_back(mapping);
      });
      return;
    }
    Module& module = modules_[path];
    if (!module.image && !load(module, pid, begin, end, vdso ? "" : path)) return;
    const auto address = module.image->address_of_file_offset(offset);
    if (address) mappings_.push_back({begin, end, begin - *address, module.id, 0});
  }

  bool load(Module& module, std::uint32_t pid, std::uint64_t begin, std::uint64_t end, const std::string& path) {
    ByteView bytes;
    if (path.empty()) {
      module.copy.resize(end - begin);
      std::ifstream memory("/proc/" + std::to_string(pid) + "/mem");
      memory.seekg(static_cast<std::streamoff>(begin));
      memory.read(reinterpret_cast<char*>(module.copy.data()), static_cast<std::streamsize>(module.copy.size()));
      bytes = ByteView(module.copy.data(), module.copy.size());
    } else {
      auto file = MappedFile::open(path);
      if (!file) return false;
      module.file = std::make_unique<MappedFile>(std::move(*file));
      bytes = module.file->bytes();
    }
    auto image = image::ElfImage::parse(bytes);
    if (!image) return false;
    module.image = std::make_unique<image::ElfImage>(std::move(*image));
    auto ignore = [](const Error&) {};
    auto table = table::compile_elf(*module.image, ignore);
    auto id = side_.add_module();
    if (!id) return false;
    module.id = *id;
    if (!table || table->empty()) {
      side_.set_no_table(*id);
      return true;
    }
    table_bytes_ += table->bytes();
    table_rows_ += table->stats().rows;
    if (on_table) on_table(*id, *table);
    return side_.load_table(*id, *table).has_value();
  }

  profiler::KernelSide& side_;
  std::map<std::string, Module> modules_;
  manager::PublishedCodes published_;
  std::vector<wl_mapping> mappings_;
  std::uint64_t table_bytes_ = 0, table_rows_ = 0;
};

}  // namespace windlass::testing
