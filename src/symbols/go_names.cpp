#include "symbols/go_names.h"

#include <algorithm>

namespace windlass::symbols {

std::unique_ptr<GoNames> GoNames::open(int fd, std::string& note) {
  auto file = MappedFile::from_fd(fd);
  const auto image = file ? image::ElfImage::parse(file->bytes()) : Failure(file.error());
  if (!image) return nullptr;  // who opens it for its symbols says so
  return make(*image, std::move(*file), note);
}

std::unique_ptr<GoNames> GoNames::make(const runtimes::go::Program& program, MappedFile file, std::string& note) {
  const auto table = runtimes::go::find_table(program);
  if (table) return std::unique_ptr<GoNames>(new GoNames(std::move(file), *table, program));
  if (table.error().code != ErrorCode::kNotFound) note = table.error().text();
  return nullptr;
}

bool GoNames::name(std::size_t index, std::uint64_t address, bool lines, ModuleNames& names) const {
  const auto function = map_.function_at(address);
  if (!function || map_.name(function->name).empty()) return false;
  names.begins[index] = std::min(function->begin, address);  // it may be looked up in front of its begin
  const auto add = [&](const runtimes::go::Place& place) {
    names.add_line(index, {names.function(place.function, place.file, place.begins_line), place.line});
  };
  if (lines)
    (void)names_.at(address, add);
  else
    names.add_line(index, {names.function(map_.name(function->name), {}, 0), 0});
  return true;
}

}  // namespace windlass::symbols
