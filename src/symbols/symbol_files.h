// Symbol files (formats/wlsym) by build id: where files are looked for, and names from those that are found.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "formats/wlsym/wlsym.h"
#include "symbols/symbolize.h"

namespace windlass::symbols {

// The bytes of a file, mapped or copied.
struct SymbolBytes {
  MappedFile mapped{};
  std::string copied{};
  [[nodiscard]] ByteView view() const {
    return copied.empty() ? mapped.bytes() : ByteView(reinterpret_cast<const std::byte*>(copied.data()), copied.size());
  }
};

// FOLDER/.build-id/xx/yyyy.wlsym. Nothing: the text is no build id.
[[nodiscard]] std::optional<std::string> symbol_file_path(const std::string& folder, const std::string& build_id);

// Any number of threads may ask.
class SymbolFiles final : public SymbolFileNames {
 public:
  // Nothing: there is none. Called by one thread at a time.
  using Find = std::function<Expected<std::optional<SymbolBytes>>(const std::string& build_id)>;

  // A later place is asked if none of those before has the file. `place`: its name in notes.
  void add(std::string place, Find find) { places_.push_back({std::move(place), std::move(find)}); }
  void add_folder(const std::string& folder);
  [[nodiscard]] bool empty() const { return places_.empty(); }

  [[nodiscard]] bool has(const std::string& build_id) override;
  void name(const profile::Module& module, std::span<const std::uint64_t> addresses, ModuleNames& names) override;

 private:
  struct Place {
    std::string name;
    Find find;
  };
  struct Opened {
    SymbolBytes bytes;
    std::optional<wlsym::SymbolFile> file;  // nothing: none was found, or none that can be read
    std::string note;
    std::mutex lock;
  };
  [[nodiscard]] Opened& open(const std::string& build_id);
  [[nodiscard]] std::unique_ptr<Opened> look_for(const std::string& build_id);

  std::vector<Place> places_;
  std::mutex lock_;
  std::map<std::string, std::unique_ptr<Opened>> opened_;
};

}  // namespace windlass::symbols
