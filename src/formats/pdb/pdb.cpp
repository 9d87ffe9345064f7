#include "formats/pdb/pdb.h"

#include <algorithm>

#include "formats/image/pe.h"
#include "formats/image/pe_format.h"

namespace windlass::pdb {
namespace {

constexpr std::uint64_t kStringTableHeader = 12;  // signature, version of the hash, size

// As the image writes it. The linker counts the age of the DBI stream; tools that add streams count that of the info.
std::string text_of_identity(const InfoHeader& info, std::uint32_t dbi_age) {
  image::pe::CodeViewRsds record{.magic = image::pe::kRsds,
                                 .guid1 = 0,
                                 .guid2 = 0,
                                 .guid3 = 0,
                                 .guid4 = {},
                                 .age = dbi_age != 0 ? dbi_age : info.age};
  std::memcpy(&record.guid1, info.guid, sizeof(info.guid));
  return image::codeview_identity(ByteView(reinterpret_cast<const std::byte*>(&record), sizeof(record)));
}

}  // namespace

PdbFile::PdbFile(MsfFile file, const Info& info, Dbi dbi)
    : file_(std::move(file)),
      dbi_(std::move(dbi)),
      publics_(file_, dbi_.header()),
      types_(file_, kTypeStream),
      ids_(file_, kIdStream),
      names_(file_.stream(info.names_stream)) {}

Expected<std::string> PdbFile::identity_of(ByteView bytes) {
  const auto file = MsfFile::parse(bytes);
  if (!file) return Failure(file.error());
  const auto info = file->stream(kInfoStream).at<InfoHeader>(0);
  if (!info) return Failure(info.error());
  const auto dbi = file->stream(kDbiStream).at<DbiHeader>(0);
  return text_of_identity(*info, dbi ? dbi->age : 0);
}

Expected<PdbFile> PdbFile::parse(ByteView bytes) {
  auto file = MsfFile::parse(bytes);
  if (!file) return Failure(file.error());
  const auto info = read_info(*file);
  if (!info) return Failure(info.error());
  if (info->minimal)
    return fail(ErrorCode::kUnsupported, "PDB of /DEBUG:FASTLINK: its symbols are in the object files", 0);
  auto dbi = Dbi::read(*file);
  if (!dbi) return Failure(dbi.error());
  return PdbFile(std::move(*file), *info, std::move(*dbi));
}

std::shared_ptr<const Module> PdbFile::module(std::uint32_t index) {
  if (const auto known = modules_.find(index); known != modules_.end()) return known->second;
  const ModuleInfo& info = dbi_.modules()[index];
  std::shared_ptr<const Module> made;
  if (auto read = Module::read(file_.stream(info.stream), info)) made = std::make_shared<Module>(std::move(*read));
  const std::size_t memory = made != nullptr ? made->memory() : 0;
  if (kept_ + memory > kMostKept) {
    modules_.clear();
    imported_names_.clear();
    kept_ = 0;
  }
  kept_ += memory;
  return modules_[index] = made;
}

std::string PdbFile::path_of(const Module& module, std::uint32_t file) const {
  const auto at = module.lines().path_of(file);
  return at ? names_.string_at(kStringTableHeader + *at) : std::string();
}

std::optional<std::uint32_t> PdbFile::module_named(const std::string& name) {
  const auto lower = [](std::string text) {
    for (char& letter : text)
      if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
    return text;
  };
  if (modules_by_name_.empty())
    for (std::uint32_t i = 0; i < dbi_.modules().size(); ++i)
      modules_by_name_.try_emplace(lower(dbi_.name_of(dbi_.modules()[i])), i);
  const auto found = modules_by_name_.find(lower(name));
  return found != modules_by_name_.end() ? std::optional(found->second) : std::nullopt;
}

const std::string& PdbFile::inlined_name(const Module& module, std::uint32_t id) {
  // Hostile records make one name dear, and may ask for it often.
  constexpr std::size_t kMostNames = 8192;
  if (names_of_ids_.size() + imported_names_.size() > kMostNames) {
    names_of_ids_.clear();
    imported_names_.clear();
  }
  const bool imported = CrossScope::is_imported(id);
  auto& known = imported ? imported_names_[&module] : names_of_ids_;
  const auto [name, is_new] = known.try_emplace(id);
  if (is_new) name->second = imported ? imported_name(module, id) : function_name(ids_, types_, id);
  return name->second;
}

std::string PdbFile::imported_name(const Module& module, std::uint32_t id) {
  const auto import = module.cross_scope().import(id);
  const auto from = import ? module_named(names_.string_at(kStringTableHeader + import->module_name)) : std::nullopt;
  const auto exporter = from ? this->module(*from) : nullptr;
  const auto exported = exporter != nullptr ? exporter->cross_scope().exported(import->id) : std::nullopt;
  return exported ? function_name(ids_, types_, *exported) : std::string();
}

std::optional<NamedProcedure> PdbFile::procedure_at(std::uint32_t rva, bool lines) {
  const auto place = dbi_.place_of(rva);
  const auto index = place ? dbi_.module_at(*place) : std::nullopt;
  const std::shared_ptr<const Module> module = index ? this->module(*index) : nullptr;
  const Procedure* procedure = module != nullptr ? module->procedure_at(*place) : nullptr;
  if (procedure == nullptr || procedure->name.empty()) return std::nullopt;
  NamedProcedure named{.begin = dbi_.rva_of(procedure->begin).value_or(rva), .frames = {}};
  NamedCode outermost{.function = std::string(procedure->name), .file = {}, .function_file = {}};
  if (lines) {
    add_inlined(*module, *procedure, *place, named);
    if (const auto line = module->lines().at(*place)) {
      outermost.file = path_of(*module, line->file);
      outermost.line = line->line;
    }
    if (const auto first = module->lines().at(procedure->begin, ModuleLines::Tie::kFirst)) {
      outermost.function_file = path_of(*module, first->file);
      outermost.function_line = first->line;
    }
  }
  named.frames.push_back(std::move(outermost));
  return named;
}

void PdbFile::add_inlined(const Module& module, const Procedure& procedure, SectionOffset place, NamedProcedure& to) {
  if (scanned_ > kMostScanned) return;
  scanned_ += module.inlined_at(procedure, place, [&](const InlinedCall& call) {
    NamedCode frame{.function = inlined_name(module, call.id), .file = {}, .function_file = {}};
    if (frame.function.empty()) return;
    if (call.line.line != 0) {
      frame.file = path_of(module, call.line.file);
      frame.line = call.line.line;
    }
    if (call.begin) {
      frame.function_file = path_of(module, call.begin->file);
      frame.function_line = call.begin->line;
    }
    to.frames.push_back(std::move(frame));
  });
  std::ranges::reverse(to.frames);
}

std::optional<PdbFile::Symbol> PdbFile::public_before(std::uint32_t rva, bool any) {
  const auto place = dbi_.place_of(rva);
  if (!place) return std::nullopt;
  const auto symbol = publics_.nearest(*place, any);
  if (!symbol || is_of_other_code(symbol->place, *place)) return std::nullopt;
  const auto at = dbi_.rva_of(symbol->place);
  return at ? std::optional(Symbol{*at, symbol->name}) : std::nullopt;
}

std::optional<PdbFile::Symbol> PdbFile::public_of_piece(std::uint32_t rva) {
  const auto place = dbi_.place_of(rva);
  const auto piece = place ? dbi_.piece_at(*place) : std::nullopt;
  auto symbol = piece ? public_before(rva, true) : std::nullopt;
  const auto at = symbol ? dbi_.place_of(symbol->rva) : std::nullopt;
  return at && dbi_.piece_at(*at) == piece ? std::move(symbol) : std::nullopt;
}

void PdbFile::each_rva(FunctionRef<void(std::uint32_t)> add) {
  const auto add_place = [&](SectionOffset place) {
    if (const auto rva = dbi_.rva_of(place)) add(*rva);
  };
  publics_.each_place(add_place);
  dbi_.each_piece(add_place);
  for (std::uint32_t i = 0; i < dbi_.modules().size(); ++i)
    if (const auto module = this->module(i)) module->each_place(add_place);
}

bool PdbFile::is_of_other_code(SectionOffset symbol, SectionOffset place) {
  const auto of_symbol = dbi_.module_at(symbol), of_place = dbi_.module_at(place);
  if (of_symbol != of_place) return true;
  const auto module = of_symbol ? this->module(*of_symbol) : nullptr;
  const Procedure* procedure = module != nullptr ? module->procedure_at(symbol) : nullptr;
  return procedure != nullptr && procedure->begin == symbol && !procedure->contains(place);
}

}  // namespace windlass::pdb
