// The Windows binaries that tests/corpora/fetch_pe.sh brought, by who compiled them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "formats/image/pe.h"
#include "support/whole.h"

namespace windlass::test {

struct PeCorpus {
  std::string name;
  std::vector<std::string> files;  // images with a function table
};

struct OpenPe {
  MappedFile file;
  image::PeImage image;
};
// The image at `path`; nothing if it is none.
inline std::optional<OpenPe> open_pe(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return std::nullopt;
  auto image = image::PeImage::parse(file->bytes());
  if (!image) return std::nullopt;
  return OpenPe{std::move(*file), std::move(*image)};
}

// Every `stride`-th file of the corpora of many files (Wine) unless whole(). Empty: nothing was fetched.
inline std::vector<PeCorpus> pe_corpora(const std::string& directory, std::size_t stride = 1,
                                        image::PeMachine machine = image::PeMachine::kAmd64) {
  std::vector<PeCorpus> corpora;
  for (const char* name : {"node-26", "node-20", "rollup", "sharp", "esbuild", "mingw", "wine", "node-20-arm64",
                           "watcher-arm64", "rollup-arm64"}) {
    PeCorpus corpus{name, {}};
    std::error_code error;
    for (std::filesystem::recursive_directory_iterator at(directory + "/" + name, error), end; !error && at != end;
         at.increment(error)) {
      if (!at->is_regular_file(error) || at->file_size(error) < 1024) continue;
      const auto file = MappedFile::open(at->path().string());
      if (!file || !image::PeImage::sniff(file->bytes())) continue;
      const auto image = image::PeImage::parse(file->bytes());
      if (image && image->machine() == machine && !image->exception_directory().empty())
        corpus.files.push_back(at->path().string());
    }
    std::sort(corpus.files.begin(), corpus.files.end());
    if (!whole() && corpus.files.size() > 100) {
      std::vector<std::string> some;
      for (std::size_t i = 0; i < corpus.files.size(); i += stride) some.push_back(corpus.files[i]);
      corpus.files = some;
    }
    if (!corpus.files.empty()) corpora.push_back(std::move(corpus));
  }
  return corpora;
}

// Why there are none, for GTEST_SKIP.
inline std::string missing_corpora(const std::string& directory) {
  std::ifstream missing(directory + "/missing");
  std::string line;
  std::string reasons;
  while (std::getline(missing, line)) reasons += (reasons.empty() ? "" : "; ") + line;
  return reasons.empty() ? "the corpora were not fetched: run tests/corpora/fetch_pe.sh " + directory : reasons;
}

}  // namespace windlass::test
