#include "symbols/net_names.h"

#include <algorithm>
#include <string>
#include <utility>

namespace windlass::symbols {

using runtimes::coreclr::MetadataTables;

// A file as if it were mapped at 0.
class NetNames::FileMemory final : public Memory {
 public:
  explicit FileMemory(ByteView file) : file_(file) {}
  bool read(std::uint64_t address, void* to, std::size_t size) const override {
    const auto bytes = file_.sub(address, size);
    if (bytes) std::copy_n(bytes->data(), size, static_cast<std::byte*>(to));
    return bytes.has_value();
  }

 private:
  ByteView file_;
};

NetNames::NetNames(std::vector<image::CompiledMethod> methods, std::shared_ptr<const Memory> file,
                   const MetadataTables& tables)
    : methods_(std::move(methods)), file_(std::move(file)), tables_(tables), metadata_(tables_) {}

std::unique_ptr<NetNames> NetNames::make(const image::PeImage& image) {
  auto methods = image::compiled_methods(image);
  if (!methods || methods->empty()) return nullptr;
  auto file = std::make_shared<FileMemory>(image.bytes());
  const auto tables = MetadataTables::open(*file, 0, true);
  if (!tables) return nullptr;
  return std::unique_ptr<NetNames>(new NetNames(std::move(*methods), std::move(file), *tables));
}

bool NetNames::name(std::size_t index, std::uint32_t begin, ModuleNames& names) const {
  const auto after = std::ranges::upper_bound(methods_, begin, {}, &image::CompiledMethod::rva);
  if (after == methods_.begin() || std::prev(after)->method == 0) return false;
  const image::CompiledMethod& found = *std::prev(after);
  const std::string name = metadata_.full_name(*file_, found.method, tables_.owner_of(*file_, found.method));
  if (name.empty()) return false;
  names.begins[index] = found.rva;
  names.add_line(index, {names.function(name, {}, 0), 0});
  return true;
}

}  // namespace windlass::symbols
