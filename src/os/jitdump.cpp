#include "os/jitdump.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace windlass::os {
namespace {

constexpr std::size_t kWindow = std::size_t{256} << 10;

[[nodiscard]] bool wraps(std::uint64_t address, std::uint64_t size) { return size > ~std::uint64_t{0} - address; }

}  // namespace

bool shows_jitdump(const ProcMap& map) {
  constexpr std::string_view kBegin = "jit-", kEnd = ".dump";
  if (!map.executable || !map.has_file()) return false;
  std::string_view name = map.path;
  name.remove_prefix(name.rfind('/') + 1);
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd) || name.size() <= kBegin.size() + kEnd.size()) return false;
  name = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  return name.find_first_not_of("0123456789") == std::string_view::npos;
}

bool JitdumpFile::copy(std::uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t got = file_.read_at(offset, to);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    offset += static_cast<std::uint64_t>(got);
    to = to.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

void JitdumpFile::report(ErrorCode code, const char* what, std::uint64_t where, std::uint64_t detail) {
  if (!problem_) problem_ = Error{code, what, where, detail};
}

// Up to `size` bytes from an offset on, of what has been written.
ByteView JitdumpFile::window(std::uint64_t offset, std::size_t size) {
  const auto in_window = [&] {
    return offset >= window_offset_ && offset - window_offset_ <= window_.size() &&
           window_.size() - (offset - window_offset_) >= size;
  };
  if (!in_window()) {
    window_.resize(kWindow);
    window_offset_ = offset;
    const ssize_t got = file_.read_at(offset, std::span(window_));
    window_.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  }
  const std::size_t skip = offset - window_offset_;
  return {window_.data() + skip, std::min(size, window_.size() - skip), offset};
}

// False where there is none yet, or it is not to be read.
bool JitdumpFile::read_header(std::uint64_t size) {
  JitdumpHeader header;
  if (size < sizeof header || !copy(0, std::as_writable_bytes(std::span(&header, 1)))) return false;
  if (header_) {
    ended_ |= header != *header_ || size < reached_;  // another program has begun it anew
    return !ended_;
  }
  if (header.magic == JitdumpHeader::kSwapped)
    report(ErrorCode::kUnsupported, "jitdump in the other byte order", 0);
  else if (header.magic != JitdumpHeader::kMagic)
    report(ErrorCode::kMalformed, "no jitdump: it does not begin with \"JiTD\"", 0, header.magic);
  else if (header.version != 1)
    report(ErrorCode::kUnsupported, "jitdump of another version than 1", 4, header.version);
  else if (header.total_size < sizeof header)
    report(ErrorCode::kMalformed, "jitdump whose header is too short", 8, header.total_size);
  ended_ = problem_.has_value();
  if (ended_) return false;
  header_ = header;
  reached_ = header.total_size;
  return true;
}

void JitdumpFile::read(JitdumpVisitor& to) {
  struct stat status {};
  if (ended_ || !file_.status(status)) return;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (!read_header(size)) return;
  window_.clear();  // its end may not have been complete
  while (!ended_ && reached_ < size && size - reached_ >= sizeof(JitdumpRecord)) {
    const auto record = window(reached_, sizeof(JitdumpRecord)).at<JitdumpRecord>(0);
    if (!record) return;
    if (record->size < sizeof *record) {
      report(ErrorCode::kMalformed, "jitdump record that is shorter than its header; what follows it is lost", reached_,
             record->size);
      ended_ = true;
      return;
    }
    if (record->size > size - reached_) return;  // the rest comes later
    take(*record, to);
    reached_ += record->size;
  }
}

void JitdumpFile::take(const JitdumpRecord& record, JitdumpVisitor& to) {
  latest_ = std::max(latest_, record.time);
  switch (record.kind) {
    case JitdumpKind::kLoad: load(record, to); break;
    case JitdumpKind::kMove: move(record, to); break;
    case JitdumpKind::kUnwindingInfo: unwinding(record); break;
    case JitdumpKind::kClose: ended_ = true; break;
    case JitdumpKind::kDebugInfo: debug_info(record); break;
  }
}

void JitdumpFile::load(const JitdumpRecord& record, JitdumpVisitor& to) {
  JitdumpDetails details = std::exchange(details_, {});
  const std::size_t wanted =
      std::min<std::size_t>(record.size, sizeof record + sizeof(JitdumpLoad) + kMaxName + 1) - sizeof record;
  const ByteView bytes = window(reached_ + sizeof record, wanted);
  const auto code = bytes.at<JitdumpLoad>(0);
  const auto name = code ? bytes.string_at(sizeof *code) : Failure(code.error());
  if (!name)
    report(ErrorCode::kMalformed, "jitdump record of code without a name that ends", reached_, record.size);
  else if (wraps(code->address, code->size))
    report(ErrorCode::kMalformed, "jitdump record of code that reaches past the last address", reached_, code->address);
  else {
    if (details.lines.address != code->address) details.lines = {};
    to.load(record.time, *code, *name, details);
  }
}

void JitdumpFile::move(const JitdumpRecord& record, JitdumpVisitor& to) {
  const std::size_t room = record.size - sizeof record;
  const auto moved = window(reached_ + sizeof record, std::min(room, sizeof(JitdumpMove))).at<JitdumpMove>(0);
  if (!moved)
    report(ErrorCode::kMalformed, "jitdump record of code that moved is too short", reached_, record.size);
  else if (wraps(moved->from, moved->size) || wraps(moved->to, moved->size))
    report(ErrorCode::kMalformed, "jitdump record of code that reaches past the last address", reached_, moved->to);
  else
    to.move(record.time, *moved);
}

void JitdumpFile::unwinding(const JitdumpRecord& record) {
  const std::size_t room = record.size - sizeof record;
  const auto data = window(reached_ + sizeof record, std::min(room, sizeof(JitdumpUnwinding))).at<JitdumpUnwinding>(0);
  if (!data || data->size > room - sizeof *data || data->header_size > data->size) {
    report(ErrorCode::kMalformed, "jitdump record of unwinding data that are not in it", reached_, record.size);
    return;
  }
  if (data->size > kMaxFrames) {
    report(ErrorCode::kLimit, "more unwinding data of a function than are read", reached_, data->size);
    return;
  }
  details_.frames = {reached_ + sizeof record + sizeof *data, static_cast<std::uint32_t>(data->size),
                     static_cast<std::uint32_t>(data->header_size)};
}

void JitdumpFile::debug_info(const JitdumpRecord& record) {
  const std::size_t room = record.size - sizeof record;
  const auto info = window(reached_ + sizeof record, std::min(room, sizeof(JitdumpDebugInfo))).at<JitdumpDebugInfo>(0);
  if (!info || info->count > (room - sizeof *info) / (sizeof(JitdumpDebugEntry) + 1)) {
    report(ErrorCode::kMalformed, "jitdump record of lines that are not in it", reached_, record.size);
    return;
  }
  if (room - sizeof *info > kMaxLines) {
    report(ErrorCode::kLimit, "more lines of a function than are read", reached_, room);
    return;
  }
  details_.lines = {reached_ + sizeof record + sizeof *info, static_cast<std::uint32_t>(room - sizeof *info),
                    static_cast<std::uint32_t>(info->count), info->address};
}

}  // namespace windlass::os
