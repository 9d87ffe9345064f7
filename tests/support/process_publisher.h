// What the agent does for one process, in the small: reads /proc/PID/maps, compiles every file's table once, publishes.
// For tests and benchmarks of the kernel side that should not depend on the agent.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "agent/kernel_side.h"
#include "image/elf.h"
#include "image/mapped_file.h"
#include "table/compile.h"

namespace windlass::testing {

class ProcessPublisher {
 public:
  explicit ProcessPublisher(agent::KernelSide& side) : side_(side) {}

  // Called with every table loaded.
  std::function<void(std::uint32_t module, const table::UnwindTable& table)> on_table;

  // The mappings last published, for checks.
  [[nodiscard]] const std::vector<wl_mapping>& mappings() const { return mappings_; }
  [[nodiscard]] std::uint64_t table_bytes() const { return table_bytes_; }
  [[nodiscard]] std::uint64_t table_rows() const { return table_rows_; }

  bool publish(std::uint32_t pid, std::uint64_t epoch = 0) {
    mappings_.clear();
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    for (std::string line; std::getline(maps, line);) {
      std::uint64_t begin = 0, end = 0, offset = 0;
      char permissions[8] = {}, path[4096] = {};
      if (std::sscanf(line.c_str(), "%lx-%lx %7s %lx %*s %*s %4095[^\n]", &begin, &end, permissions, &offset, path) < 4)
        continue;
      if (std::strchr(permissions, 'x') == nullptr || begin >> 63 != 0) continue;
      add(pid, begin, end, offset, path);
    }
    return side_.publish(pid, mappings_, epoch).has_value();
  }

 private:
  struct Module {
    std::uint32_t id = 0;
    std::unique_ptr<image::MappedFile> file;
    std::unique_ptr<image::ElfImage> image;
    std::vector<std::byte> copy;
  };

  void add(std::uint32_t pid, std::uint64_t begin, std::uint64_t end, std::uint64_t offset, const std::string& path) {
    const bool vdso = path == "[vdso]";
    if (!vdso && path.front() != '/') {
      mappings_.push_back({begin, end, 0, 0, WL_MAPPING_GENERATED});
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
      auto file = image::MappedFile::open(path);
      if (!file) return false;
      module.file = std::make_unique<image::MappedFile>(std::move(*file));
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

  agent::KernelSide& side_;
  std::map<std::string, Module> modules_;
  std::vector<wl_mapping> mappings_;
  std::uint64_t table_bytes_ = 0, table_rows_ = 0;
};

}  // namespace windlass::testing
