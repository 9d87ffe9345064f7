#include "runtimes/jitdump_code.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/monotonic.h"
#include "formats/dwarf/cfi.h"
#include "formats/dwarf/lower.h"
#include "formats/image/unwind_sections.h"
#include "os/mapped_files.h"

namespace windlass::manager {

using os::CodeHistory;

// ---- the file -------------------------------------------------------------------------------------------------------

Expected<std::shared_ptr<JitdumpCode>> JitdumpCode::open(pid_t pid, pid_t parent, const os::ProcMap& map) {
  int error = ENOENT;
  for (const os::FileCandidate& candidate : os::files_of(pid, parent, map)) {
    struct stat status {};
    os::GrowingFile file = os::GrowingFile::open(candidate, status);
    if (!file)
      error = errno;
    else if (candidate.certain || status.st_ino == candidate.inode)
      return std::make_shared<JitdumpCode>(std::move(file), map.begin, map.file);
  }
  return fail(ErrorCode::kSystem, "jitdump cannot be opened", map.begin, static_cast<std::uint64_t>(error));
}

JitdumpCode::JitdumpCode(os::GrowingFile file, std::uint64_t address, const os::FileIdentity& identity)
    : PublishedCode(address, identity), file_(std::move(file)), opened_(monotonic_ns()) {}

bool JitdumpCode::has_own_clock() const {
  return file_.header() && (file_.header()->flags & os::JitdumpHeader::kProcessorsClock) != 0;
}

// What was written before a time is known from here on.
void JitdumpCode::read_until(std::uint64_t time) {
  if (read_ != 0 && read_ >= time) return;
  read_ = monotonic_ns();
  file_.read(*this);
}

void JitdumpCode::load(std::uint64_t time, const os::JitdumpLoad& load, std::string_view name,
                       const os::JitdumpDetails& details) {
  if (functions_.size() == kMaxFunctions || name.size() > kMaxText - texts_.size()) {
    if (!problem_) problem_ = Error{ErrorCode::kLimit, "more functions in a jitdump than are kept", load.address};
    return;
  }
  const auto number = static_cast<std::uint32_t>(functions_.size());
  functions_.push_back({texts_.size(), static_cast<std::uint32_t>(name.size()), details.frames});
  lines_.add(number, load.size, details.lines, file_);
  texts_ += name;
  by_index_[load.index] = number;
  history_.add({load.address, load.size, has_own_clock() ? read_ : time, number});
}

void JitdumpCode::move(std::uint64_t time, const os::JitdumpMove& move) {
  const auto moved = by_index_.find(move.index);
  if (moved == by_index_.end()) {
    if (!problem_) problem_ = Error{ErrorCode::kMalformed, "code that moved, of no known index", move.to, move.index};
    return;
  }
  const std::uint64_t since = has_own_clock() ? read_ : time;
  history_.add({move.from, move.size, since, CodeHistory::kGone});
  history_.add({move.to, move.size, since, moved->second});
}

std::optional<Error> JitdumpCode::problem() const {
  const std::lock_guard hold(lock_);
  return file_.problem() ? file_.problem() : problem_;
}

// ---- names ----------------------------------------------------------------------------------------------------------

void JitdumpCode::set_time(std::uint64_t time) {
  const std::lock_guard hold(lock_);
  time_ = time;
  read_until(time);
}

bool JitdumpCode::is_settled(std::uint64_t time, std::uint64_t ended) {
  const std::lock_guard hold(lock_);
  if (ended != 0) read_until(ended);
  const auto is = [&] { return ended != 0 || file_.ended() || file_.latest() >= time || has_own_clock(); };
  if (!is() && monotonic_ns() - read_ >= kLookInterval) read_until(~std::uint64_t{0});
  return is();
}

std::uint64_t JitdumpCode::functions_at(std::uint64_t address, std::uint64_t /*function*/, std::uint64_t time,
                                        std::vector<sources::NamedFunction>& to) {
  const std::lock_guard hold(lock_);
  if (time == kTimeSet) time = time_;
  read_until(time);
  const CodeHistory::Piece* piece = history_.find(address, time);
  if (piece == nullptr) piece = history_.find_first(address);
  if (piece == nullptr || piece->function == CodeHistory::kGone) return 0;
  const Known& known = functions_[piece->function];
  const std::string_view name = std::string_view(texts_).substr(known.name_at, known.name_size);
  const auto [file, line] = line_in(*piece, address);
  if (!name.empty()) to.push_back({std::string(name), std::string(file), line});
  return piece->begin;
}

// ---- rows -----------------------------------------------------------------------------------------------------------

const CodeHistory::Piece* JitdumpCode::piece_at(std::uint64_t address) const {
  const CodeHistory::Piece* piece = history_.find(address, time_);
  return piece != nullptr && piece->function != CodeHistory::kGone ? piece : nullptr;
}

// They stay: rows have views of them. Null: there are none, or no more are kept.
const std::vector<std::byte>* JitdumpCode::frames_of(std::uint32_t function) {
  const os::JitdumpFrames& where = functions_[function].frames;
  if (where.size == where.header_size) return nullptr;
  const auto [known, is_new] = frames_.try_emplace(function);
  if (is_new && where.size <= kMaxFrames - frame_bytes_) {
    known->second.resize(where.size);
    frame_bytes_ += where.size;
    if (!file_.copy(where.offset, known->second)) known->second.clear();
  }
  return known->second.empty() ? nullptr : &known->second;
}

std::optional<Architecture> JitdumpCode::architecture() const {
  if (!file_.header()) return std::nullopt;
  const auto machine = static_cast<image::Machine>(file_.header()->elf_machine);
  switch (machine) {
    case image::Machine::kX86_64:
    case image::Machine::kAArch64:
    case image::Machine::kI386: return image::architecture_of(machine);
  }
  return std::nullopt;
}

// The specification has .eh_frame_hdr stand before .eh_frame; perf reads it behind, and V8 and this library write it
// there. Both count from the next multiple of 8 behind the code, where perf puts them (genelf.c).
Expected<void> JitdumpCode::for_each_fde(const CodeHistory::Piece& piece, FdeSink sink) {
  const std::vector<std::byte>* bytes = frames_of(piece.function);
  const auto known = architecture();
  if (bytes == nullptr || !known) return fail(ErrorCode::kNotFound, "no unwinding data", piece.begin);
  const std::size_t header = functions_[piece.function].frames.header_size;
  std::optional<Error> wrong;
  const auto report = [&](const Error& error) { wrong = error; };
  for (const std::size_t begin : {std::size_t{0}, header}) {
    dwarf::CfiSection section;
    section.architecture = *known;
    section.bytes = ByteView(bytes->data() + begin, bytes->size() - header);
    section.address = piece.begin + (piece.size + 7) / 8 * 8 + begin;
    dwarf::CfiReader reader(section, report);
    bool any = false;
    for (dwarf::Fde fde; reader.next_fde(fde);) {
      if (!piece.contains(fde.begin) || fde.end - fde.begin > piece.size) continue;
      any = true;
      if (const auto more = sink(section, fde); !more)
        return Failure(more.error());
      else if (!*more)
        return {};
    }
    if (any) break;
  }
  if (wrong) return Failure(*wrong);
  return fail(ErrorCode::kNotFound, "no row covers the address", piece.begin);
}

Expected<void> JitdumpCode::row_in(const CodeHistory::Piece& piece, std::uint64_t address, FrameRow& to) {
  return for_each_fde(piece, [&](const dwarf::CfiSection& section, const dwarf::Fde& fde) -> Expected<bool> {
    if (address < fde.begin || address >= fde.end) return true;
    if (const auto found = dwarf::row_at(section, fde, address, to); !found) return Failure(found.error());
    return false;
  });
}

class JitdumpCode::Source final : public sources::UnwindSource {
 public:
  explicit Source(std::shared_ptr<JitdumpCode> code) : code_(std::move(code)) {}

  std::optional<Architecture> architecture() const override {
    const std::lock_guard hold(code_->lock_);
    return code_->architecture();
  }
  Expected<void> row_at(std::uint64_t address, FrameRow& to) const override {
    const std::lock_guard hold(code_->lock_);
    const CodeHistory::Piece* piece = code_->piece_at(address);
    if (piece == nullptr) return fail(ErrorCode::kNotFound, "no function contains the address", address);
    return code_->row_in(*piece, address, to);
  }
  Expected<sources::Function> function_at(std::uint64_t address) const override {
    const std::lock_guard hold(code_->lock_);
    const CodeHistory::Piece* piece = code_->piece_at(address);
    if (piece == nullptr) return fail(ErrorCode::kNotFound, "no function contains the address", address);
    return function_of(*piece);
  }
  std::uint64_t function_start(std::uint64_t address) const override {
    const auto found = function_at(address);
    return found ? found->begin : 0;
  }
  // Those that are there at the time that was set.
  void for_each_function(sources::FunctionSink callback, sources::ErrorSink) const override {
    std::vector<sources::Function> functions;
    {
      const std::lock_guard hold(code_->lock_);
      for (const CodeHistory::Piece& piece : code_->history_.pieces())
        if (code_->piece_at(piece.begin) == &piece) functions.push_back(function_of(piece));
    }
    std::ranges::sort(functions, {}, &sources::Function::begin);
    for (const sources::Function& function : functions)
      if (!callback(function)) return;
  }
  void for_each_row(const sources::Function& function, sources::RowSink callback,
                    sources::ErrorSink report) const override {
    const std::lock_guard hold(code_->lock_);
    const CodeHistory::Piece* piece = code_->piece_at(function.begin);
    if (piece == nullptr) return;
    const auto give = [&](const dwarf::CfiSection& section, const dwarf::Fde& fde) -> Expected<bool> {
      if (const auto done = dwarf::for_each_row(section, fde, callback); !done) return Failure(done.error());
      return true;
    };
    if (const auto done = code_->for_each_fde(*piece, give); !done && done.error().code != ErrorCode::kNotFound)
      report(done.error());
  }
  void for_each_row(sources::RowVisitor& visitor, sources::ErrorSink report) const override {
    sources::for_each_row_by_function(*this, "jitdump", visitor, report);
  }

 private:
  static sources::Function function_of(const CodeHistory::Piece& piece) {
    sources::Function function;
    function.begin = function.primary = piece.begin;
    function.end = piece.begin + piece.size;
    return function;
  }

  std::shared_ptr<JitdumpCode> code_;
};

std::unique_ptr<sources::UnwindSource> JitdumpCode::make_source() {
  return std::make_unique<Source>(std::static_pointer_cast<JitdumpCode>(shared_from_this()));
}

}  // namespace windlass::manager
