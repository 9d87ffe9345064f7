// windlass symbols: files are read, and what is made of them is kept.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/mapped_file.h"
#include "base/shown.h"
#include "base/text_writer.h"
#include "cli/commands.h"
#include "cli/errors.h"
#include "cli/say.h"
#include "cli/symbols.h"
#include "formats/wlsym/wlsym.h"
#include "profiler/store/open_store.h"
#include "symbols/symbol_files.h"
#include "symbols/write_symbols.h"

namespace windlass::cli {
namespace {

namespace fs = std::filesystem;
using symbols::WrittenSymbols;

void print_line(const std::string& line) {
  TextWriter out(STDOUT_FILENO);
  out.text(line);
}

// Where symbol files are put.
class Target {
 public:
  virtual ~Target() = default;
  // False: a better one is there.
  [[nodiscard]] virtual Expected<bool> put(const WrittenSymbols& symbols) = 0;
};

Expected<std::optional<std::uint64_t>> rank_at(const std::string& path) {
  std::error_code unknown;
  if (!fs::exists(path, unknown)) return std::nullopt;
  const auto file = MappedFile::open(path);
  if (!file) return Failure(file.error());
  const auto symbols = wlsym::SymbolFile::parse(file->bytes());
  return symbols ? std::optional(symbols->rank()) : std::nullopt;  // one that is damaged is written over
}

class Folder final : public Target {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  Expected<bool> put(const WrittenSymbols& symbols) override {
    const auto path = symbols::symbol_file_path(path_, symbols.build_id);
    if (!path) return fail(ErrorCode::kMalformed, "the build id is no text of letters and digits", 0);
    const auto there = rank_at(*path);
    if (!there) return Failure(there.error());
    if (*there && **there > symbols.rank) return false;
    const auto refused = [](const std::error_code& error) {
      return fail(ErrorCode::kSystem, "the symbol file cannot be written", 0,
                  static_cast<std::uint64_t>(error.value()));
    };
    std::error_code error;
    fs::create_directories(fs::path(*path).parent_path(), error);
    if (error) return refused(error);
    const std::string made = fmt::format("{}.{}", *path, getpid());  // readers see a whole file
    std::ofstream file(made, std::ios::binary);
    file << symbols.file;
    file.close();
    if (file) fs::rename(made, *path, error);
    if (!file) error = std::error_code(errno, std::generic_category());
    if (!error) return true;
    std::error_code ignored;
    fs::remove(made, ignored);
    return refused(error);
  }

 private:
  std::string path_;
};

class Store final : public Target {
 public:
  explicit Store(std::unique_ptr<store::ProfileStore> store) : store_(std::move(store)) {}
  Expected<bool> put(const WrittenSymbols& symbols) override {
    const ByteView bytes(reinterpret_cast<const std::byte*>(symbols.file.data()), symbols.file.size());
    return store_->put_symbols({.build_id = symbols.build_id, .name = symbols.name, .rank = symbols.rank, .bytes = 0},
                               bytes);
  }

 private:
  std::unique_ptr<store::ProfileStore> store_;
};

// Nothing: says why on stderr, and sets `status`.
std::unique_ptr<Target> target_of(const SymbolsArguments& arguments, int& status) {
  if (arguments.action == "write") return std::make_unique<Folder>(arguments.output);
  if (arguments.to.empty()) {
    say("windlass: symbols push has nowhere to put files. Way out: --to, a store or a folder\n");
    status = kUsage;
    return nullptr;
  }
  std::error_code unknown;
  if (fs::is_directory(arguments.to, unknown)) return std::make_unique<Folder>(arguments.to);
  auto store = store::open_store(arguments.to, {.write = true, .keep = {}});
  if (store) return std::make_unique<Store>(std::move(*store));
  say_error(arguments.to, store.error());
  status = store.error().code == ErrorCode::kMalformed ? kFoundWrong : kRefused;
  return nullptr;
}

Expected<WrittenSymbols> symbols_of(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file) return Failure(file.error());
  const ByteView bytes = file->bytes();
  constexpr std::string_view kMagic(wlsym::kMagic, sizeof(wlsym::kMagic));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) return symbols::write_symbols(path);
  auto symbols = wlsym::SymbolFile::parse(bytes);
  if (!symbols) return Failure(symbols.error());
  if (const auto good = symbols->check(); !good) return Failure(good.error());
  return WrittenSymbols{.build_id = std::string(symbols->build_id()),
                        .name = std::string(symbols->name()),
                        .rank = symbols->rank(),
                        .file = std::string(text)};
}

// Files below a folder that are of other kinds are passed, and those without names are counted.
class Work {
 public:
  explicit Work(Target& target) : target_(target) {}

  void take(const std::string& path) {
    std::error_code error;
    if (!fs::is_directory(path, error)) return take_file(path, false);
    const auto options = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator at(path, options, error), end; !error && at != end; at.increment(error)) {
      std::error_code unknown;
      if (at->is_regular_file(unknown) && !at->is_symlink(unknown)) take_file(at->path().string(), true);
    }
    if (error) {
      say_error(path, {ErrorCode::kSystem, "cannot be listed", 0, static_cast<std::uint64_t>(error.value())});
      status_ = kRefused;
    }
  }
  [[nodiscard]] int finish() const {
    if (nameless_ != 0) say("windlass: {} files have no names or no build id\n", nameless_);
    if (files_ == 0 && status_ == kDone) {
      say("windlass: no file has names. Way out: files that are not stripped, or the packages with their debug "
          "information\n");
      return kFoundWrong;
    }
    return status_;
  }

 private:
  void take_file(const std::string& path, bool found) {
    const auto symbols = symbols_of(path);
    if (!symbols) {
      const ErrorCode code = symbols.error().code;
      if (found && code == ErrorCode::kUnsupported) return;
      nameless_ += found && code == ErrorCode::kNotFound ? 1 : 0;
      if (!found || code != ErrorCode::kNotFound) refuse(path, symbols.error());
      return;
    }
    const auto put = target_.put(*symbols);
    if (!put) return refuse(path, put.error());
    ++files_;
    print_line(fmt::format("{} {} {} bytes{}\n", symbols->build_id, shown(symbols->name), symbols->file.size(),
                           *put ? "" : ": a file with more is there"));
  }
  void refuse(const std::string& path, const Error& error) {
    say_error(path, error);
    status_ = std::max(status_, static_cast<int>(error.code == ErrorCode::kSystem ? kRefused : kFoundWrong));
  }

  Target& target_;
  std::size_t files_ = 0, nameless_ = 0;
  int status_ = kDone;
};

void print_entry(const store::StoredSymbols& one, const std::string& where, bool as_json) {
  const bool lines = (one.rank & 0xffff) == static_cast<std::uint64_t>(wlsym::Detail::kLines);
  const char* const contents = lines ? "lines" : "functions";
  if (!as_json)
    return print_line(fmt::format("{} {} {} bytes, {}\n", shown(one.build_id), shown(one.name), one.bytes, contents));
  TextWriter out(STDOUT_FILENO);
  JsonWriter json(out);
  json.begin_object();
  json.member("build_id", one.build_id);
  json.member("name", one.name);
  json.member("bytes", one.bytes);
  json.member("contents", contents);
  json.member("in", where);
  json.end_object();
  out.character('\n');
}

int list_folder(const std::string& path, bool as_json) {
  int status = kDone;
  std::set<std::string> files;  // in the order of build ids
  std::error_code error;
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".wlsym") files.insert(at->path().string());
  for (const std::string& name : files) {
    const auto file = MappedFile::open(name);
    const auto symbols = file ? wlsym::SymbolFile::parse(file->bytes()) : Failure(file.error());
    if (symbols) {
      print_entry({.build_id = std::string(symbols->build_id()),
                   .name = std::string(symbols->name()),
                   .rank = symbols->rank(),
                   .bytes = file->bytes().size()},
                  name, as_json);
    } else {
      say_error(name, symbols.error());
      status = kFoundWrong;
    }
  }
  return status;
}

int list(const std::string& path, bool as_json) {
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) return list_folder(path, as_json);
  const auto store = store::open_store(path);
  const auto files = store ? (*store)->symbol_files() : Failure(store.error());
  if (!files) {
    say_error(path, files.error());
    return files.error().code == ErrorCode::kMalformed ? kFoundWrong : kRefused;
  }
  for (const store::StoredSymbols& one : *files) print_entry(one, store::shown_place(path), as_json);
  return kDone;
}

}  // namespace

int run_symbols(const SymbolsArguments& arguments) {
  int status = kDone;
  if (arguments.action == "list") {
    for (const std::string& file : arguments.files) status = std::max(status, list(file, arguments.json));
    return status;
  }
  if (arguments.json) {
    say("windlass: symbols {} prints no JSON. Way out: symbols list --json\n", arguments.action);
    return kUsage;
  }
  const auto target = target_of(arguments, status);
  if (target == nullptr) return status;
  Work work(*target);
  for (const std::string& file : arguments.files) work.take(file);
  return work.finish();
}

}  // namespace windlass::cli
