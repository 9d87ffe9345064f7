// Modules of an address space.
#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "base/mapped_file.h"
#include "formats/image/elf.h"
#include "os/mapped_files.h"
#include "os/perf_map.h"
#include "symbols/subject.h"
#include "walk/inside.h"
#include "walk/target/memory_image.h"

namespace windlass::symbols {

namespace {

// The perf map that a JIT compiler writes is named after its process as that sees itself, in its own /tmp.
std::string perf_map_of(const SpaceOrigin& origin) {
  if (!origin.live) return fmt::format("/tmp/perf-{}.map", origin.process);
  return os::perf_map_path(static_cast<pid_t>(origin.process));
}

// As /proc/PID/maps calls it, and the dynamic linker.
bool is_vdso(const std::string& path) { return path == "[vdso]" || path.starts_with("linux-vdso.so"); }

// Of what is mapped where the file would be; empty: the memory does not show it.
std::string mapped_build_id(const Memory& memory, const image::ElfImage& file, std::uint64_t bias) {
  for (const image::Segment& segment : file.segments()) {
    if (segment.type != PT_LOAD || segment.offset != 0) continue;
    const auto headers = walk::read_loaded_headers(memory, segment.vaddr + bias);
    return headers ? headers->build_id : std::string();
  }
  return {};
}

}  // namespace

SpaceSubject::SpaceSubject(const AddressSpace& space, const SpaceOrigin& origin, KnownModules& modules)
    : space_(space), origin_(origin), modules_(modules) {}

void SpaceSubject::open_all() {
  for (const ModuleInfo* info : space_.modules())
    if (const walk::Module* module = walk::module_at(space_, info->begin); module != nullptr) open(*module);
}

void SpaceSubject::open_those_of(std::span<const CodeAddress> pcs) {
  const walk::Module* last = nullptr;
  for (const CodeAddress pc : pcs) {
    const walk::Module* module = walk::module_at(space_, pc.lookup());
    if (module == nullptr || module == last || opened_.contains(module->id())) continue;
    open(*module);
    last = module;
  }
}

void SpaceSubject::open(const walk::Module& module) {
  const ModuleInfo& info = module.info();
  os::Descriptor file;
  if (module.id() != 0 && !info.file.empty() && !is_vdso(info.path)) file = os::Descriptor(os::open_regular(info.file));
  if (file)
    opened_[module.id()] = std::move(file);
  else
    (void)known(module);
}

Place SpaceSubject::find(std::uint64_t address, std::uint64_t function) {
  const walk::Module* module = walk::module_at(space_, address);
  if (module == nullptr) return {nullptr, {}, address, address};
  const Known& known = this->known(*module);
  Place place{known.module, known.path, address - known.bias, address - known.number_bias};
  if (!module->generated()) {
    if (function != 0 && origin_.interpreted != nullptr) add_interpreted(function, place);
    return place;
  }
  if (module->names() != nullptr) add_functions(*module->names(), address, function, place);
  return place;
}

Place SpaceSubject::named_place(const sources::NamedFunction& function) {
  Place place;
  place.name = modules_.keep(function.name);
  place.file = modules_.keep(function.file);
  place.line = function.line;
  return place;
}

void SpaceSubject::add_interpreted(std::uint64_t function, Place& place) {
  functions_.clear();
  (void)origin_.interpreted->functions_at(function, functions_);
  for (const sources::NamedFunction& known : functions_) place.inlined.push_back(named_place(known));
}

void SpaceSubject::add_functions(sources::NameSource& names, std::uint64_t address, std::uint64_t function,
                                 Place& place) {
  functions_.clear();
  const std::uint64_t begin = names.functions_at(address, function, sources::NameSource::kTimeSet, functions_);
  if (functions_.empty()) return;
  for (std::size_t i = 0; i + 1 < functions_.size(); ++i) place.inlined.push_back(named_place(functions_[i]));
  const Place outermost = named_place(functions_.back());
  place.name = outermost.name;
  place.file = outermost.file;
  place.line = outermost.line;
  // Where the code of an interpreter begins says nothing of the function that it runs.
  if (function == 0) place.function_begin = begin - (address - place.offset);
}

const SpaceSubject::Known& SpaceSubject::known(const walk::Module& module) {
  const auto found = by_id_.find(module.id());
  if (found != by_id_.end() && found->second.is_final) return found->second;
  Known made = identify(module);
  return module.id() == 0 ? last_unkept_ = made : by_id_[module.id()] = made;
}

SpaceSubject::Known SpaceSubject::identify(const walk::Module& module) {
  // One that dlopen has brought is given its name here: see own_process().
  if (module.info().path.empty() && module.info().file.empty()) (void)AddressSpace::self();
  const ModuleInfo& info = module.info();
  Known made{.path = modules_.keep(info.path.empty() ? "?" : info.path), .bias = info.bias, .number_bias = info.bias};
  if (is_vdso(info.path)) {
    made.module = vdso(info);
  } else if (!module.generated() || !info.file.empty()) {
    made.module = file(module);
    // Of PE images the bytes are as they are mapped, which no reader of names takes.
    if (made.module == nullptr && !module.image_in_memory().empty() && !info.windows)
      made.module = modules_.of_image(module.image_in_memory(), info.path);
  } else if (!info.path.starts_with('/') && info.path != "[vsyscall]") {
    made.module = perf_map();
    made.number_bias = 0;
    made.is_final = made.module != nullptr;
  }
  return made;
}

KnownModule* SpaceSubject::perf_map() {
  if (origin_.process == 0) return nullptr;
  if (perf_map_.empty()) perf_map_ = perf_map_of(origin_);
  os::Descriptor map(os::open_regular(perf_map_));
  struct stat status {};
  if (!map || fstat(map.get(), &status) != 0) return nullptr;
  if (origin_.live && os::is_left_behind(status, static_cast<pid_t>(origin_.process))) return nullptr;
  return modules_.of_perf_map(std::move(map), origin_.process);
}

KnownModule* SpaceSubject::vdso(const ModuleInfo& info) {
  constexpr std::uint64_t kMax = std::uint64_t{1} << 20;
  if (origin_.live) return modules_.of_own_vdso();
  if (info.end - info.begin > kMax) return nullptr;
  std::vector<std::byte> bytes(info.end - info.begin);
  return space_.memory().read(info.begin, bytes.data(), bytes.size())
             ? modules_.of_image(ByteView(bytes.data(), bytes.size()), info.path)
             : nullptr;
}

// ModuleInfo::file was chosen by whoever knows that it is the one that is mapped; at ::path there may be another by
// now.
KnownModule* SpaceSubject::file(const walk::Module& module) {
  const ModuleInfo& info = module.info();
  if (auto opened = opened_.extract(module.id()); !opened.empty())
    return modules_.of_file(std::move(opened.mapped()), info.path);
  const bool certain = !info.file.empty();
  if (!certain && (info.windows || !info.path.starts_with('/'))) return nullptr;
  os::Descriptor file(os::open_regular(certain ? info.file : info.path));
  if (!file) return nullptr;
  if (!certain) {
    const auto bytes = MappedFile::from_fd(file.get());
    const auto image = bytes ? image::ElfImage::parse(bytes->bytes()) : Failure(bytes.error());
    const std::string mapped = image ? mapped_build_id(space_.memory(), *image, info.bias) : std::string();
    if (!mapped.empty() && mapped != image->build_id()) return modules_.of_build_id(mapped, info.path);
  }
  return modules_.of_file(std::move(file), info.path);
}

}  // namespace windlass::symbols
