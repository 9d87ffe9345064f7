#include "symbols/pdb_find.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/ascii_case.h"
#include "os/descriptor.h"
#include "os/mapped_files.h"

namespace windlass::symbols {
namespace {

std::vector<std::string_view> pieces_of(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    if (end != at) pieces.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return pieces;
}

bool is_server(std::string_view place) { return place.starts_with("http://") || place.starts_with("https://"); }

bool is_word_of_path(std::string_view piece) {
  return std::ranges::any_of(std::array<std::string_view, 4>{"srv", "symsrv", "symsrv.dll", "cache"},
                             [&](std::string_view word) { return equal_without_case(word, piece); });
}

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

// "foo.pdb" for ".../foo.dll".
std::string named_after(const std::string& image) {
  const std::string name = image.substr(image.rfind('/') + 1);
  return name.substr(0, name.rfind('.')) + ".pdb";
}

struct Candidate {
  std::string path;
  bool given = false;  // by the user, for any of several images
};

void add_beside(const std::string& image, const std::string& name, std::vector<Candidate>& to) {
  if (!image.starts_with('/')) return;
  if (!name.empty()) to.push_back({fmt::format("{}/{}", folder_of(image), name)});
  const std::string own = named_after(image);
  if (own != name) to.push_back({fmt::format("{}/{}", folder_of(image), own)});
}

std::vector<Candidate> candidates_of(const WantedPdb& wanted, const SymbolizeOptions& options,
                                     const SymbolPath& symbol_path) {
  std::vector<Candidate> found;
  for (const std::string& given : options.pdb_files) found.push_back({given, true});
  for (const std::string& image : wanted.images) add_beside(image, wanted.name, found);
  if (wanted.recorded.starts_with('/')) found.push_back({wanted.recorded});
  for (const std::string& folder : symbol_path.folders) {
    if (wanted.name.empty()) continue;
    found.push_back({fmt::format("{0}/{1}/{2}/{1}", folder, wanted.name, wanted.identity)});
    found.push_back({fmt::format("{}/{}", folder, wanted.name)});
  }
  return found;
}

bool has_name(const std::string& path, const std::string& name) {
  return equal_without_case(std::string_view(path).substr(path.rfind('/') + 1), name);
}

// Null, and why, where that is worth a sentence.
std::unique_ptr<OpenPdb> open_pdb(const Candidate& candidate, const WantedPdb& wanted, std::string& problem) {
  const os::Descriptor descriptor(os::open_regular(candidate.path));
  if (!descriptor) {
    const char* what = errno == ENODEV ? "not a regular file" : std::strerror(errno);
    if (candidate.given) problem = fmt::format("{}: {}", candidate.path, what);
    return nullptr;
  }
  auto file = MappedFile::from_fd(descriptor.get());
  if (!file) return nullptr;
  const auto identity = pdb::PdbFile::identity_of(file->bytes());
  if (!identity) {
    problem = fmt::format("{}: {}", candidate.path, identity.error().text());
    return nullptr;
  }
  if (*identity != wanted.identity) {
    // One that was given may be of another of the program's images.
    if (!candidate.given || has_name(candidate.path, wanted.name))
      problem = fmt::format("{}: is not the PDB file of {}: it has the identity {}, the image has {}", candidate.path,
                            wanted.images.empty() ? wanted.name : wanted.images.front(), *identity, wanted.identity);
    return nullptr;
  }
  auto pdb = pdb::PdbFile::parse(file->bytes());
  if (!pdb) {
    problem = fmt::format("{}: {}", candidate.path, pdb.error().text());
    return nullptr;
  }
  return std::make_unique<OpenPdb>(std::move(*file), std::move(*pdb));
}

}  // namespace

SymbolPath parse_symbol_path(std::string_view text) {
  SymbolPath path;
  for (const std::string_view element : pieces_of(text, ';'))
    for (const std::string_view piece : pieces_of(element, '*')) {
      if (is_word_of_path(piece)) continue;
      (is_server(piece) ? path.servers : path.folders).emplace_back(piece);
    }
  return path;
}

std::unique_ptr<OpenPdb> find_pdb(const WantedPdb& wanted, const SymbolizeOptions& options, std::string& note) {
  note.clear();
  if (wanted.identity.empty()) return nullptr;
  const char* environment = std::getenv("_NT_SYMBOL_PATH");
  const SymbolPath symbol_path = parse_symbol_path(!options.symbol_path.empty() ? options.symbol_path.c_str()
                                                   : environment != nullptr     ? environment
                                                                                : "");
  std::string of_given;  // said even if another place has the file
  for (const Candidate& candidate : candidates_of(wanted, options, symbol_path)) {
    std::string problem;
    if (auto found = open_pdb(candidate, wanted, problem)) {
      note = of_given;
      return found;
    }
    if (note.empty()) note = problem;
    if (candidate.given && of_given.empty()) of_given = problem;
  }
  if (note.empty() && !symbol_path.servers.empty())
    note = fmt::format(
        "symbol server {} is not asked. Way out: fetch the PDB files, and name their folder with "
        "--symbol-path",
        symbol_path.servers.front());
  return nullptr;
}

}  // namespace windlass::symbols
