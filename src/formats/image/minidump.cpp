#include "formats/image/minidump.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/utf8.h"
#include "formats/image/pe.h"

namespace windlass::image {
namespace {

constexpr std::uint32_t kSignature = 0x504d444d;  // "MDMP"
constexpr std::uint32_t kVersion = 0xa793;        // in the lower half
constexpr std::uint64_t kHeaderSize = 32;

enum StreamType : std::uint32_t {
  kThreadList = 3,
  kModuleList = 4,
  kMemoryList = 5,
  kException = 6,
  kSystemInfo = 7,
  kThreadExList = 8,
  kMemory64List = 9,
  kMiscInfo = 15,
  kThreadNames = 24,
  kLinuxStatus = 0x47670004,  // the text of /proc/PID/status
  kLinuxCommandLine = 0x47670006,
  kLinuxMaps = 0x47670009,
};

// SYSTEM_INFO's wProcessorArchitecture.
constexpr std::uint16_t kAmd64 = 9;
constexpr std::uint16_t kArm64 = 12;
constexpr std::uint16_t kArm64Breakpad = 0x8003;  // of Breakpad before Windows had the machine
constexpr std::uint32_t kWindowsNt = 2;           // VER_PLATFORM_WIN32_NT

constexpr std::uint32_t kRsds = 0x53445352;         // CodeView: a PDB 7.0 record
constexpr std::uint32_t kBreakpadElf = 0x4270454c;  // "BpEL": an ELF build id

constexpr std::uint64_t kThreadSize = 48;
constexpr std::uint64_t kThreadExSize = 64;  // a thread and its backing store
constexpr std::uint64_t kModuleSize = 108;
constexpr std::uint64_t kMemorySize = 16;
constexpr std::uint64_t kMemory64Size = 16;
constexpr std::uint64_t kThreadNameSize = 12;

std::string from_utf16(ByteView bytes) {
  std::string out;
  for (std::uint64_t at = 0; at + 2 <= bytes.size(); at += 2) {
    std::uint32_t c = *bytes.at<std::uint16_t>(at);
    const bool high = c >= 0xd800 && c < 0xdc00;
    const auto low = high ? bytes.at<std::uint16_t>(at + 2) : Expected<std::uint16_t>(0);
    if (high && low && *low >= 0xdc00 && *low < 0xe000) {
      c = 0x10000 + ((c - 0xd800) << 10) + (*low - 0xdc00u);
      at += 2;
    } else if (c >= 0xd800 && c < 0xe000) {
      c = 0xfffd;  // half a pair
    }
    if (c == 0) break;
    append_utf8(out, c);
  }
  return out;
}

}  // namespace

Expected<MinidumpFile> MinidumpFile::parse(ByteView file) {
  const auto signature = file.at<std::uint32_t>(0);
  if (!signature || *signature != kSignature) return fail(ErrorCode::kMalformed, "not a minidump", file.origin());
  const auto version = file.at<std::uint32_t>(4);
  if (!version || file.size() < kHeaderSize)
    return fail(ErrorCode::kTruncated, "minidump header reaches past the end of the file", file.origin(), file.size());
  if ((*version & 0xffff) != kVersion)
    return fail(ErrorCode::kUnsupported, "unknown version of a minidump", file.origin() + 4, *version);
  MinidumpFile dump(file);
  const auto streams = dump.read_directory(*file.at<std::uint32_t>(8), *file.at<std::uint32_t>(12));
  if (!dump.read_system(streams))
    return fail(ErrorCode::kUnsupported, "minidump does not say its machine is x86-64 or AArch64", file.origin());
  // Threads before their names.
  for (const Stream& stream : streams)
    if (stream.type != kThreadNames) dump.read(stream);
  for (const Stream& stream : streams)
    if (stream.type == kThreadNames) dump.read(stream);
  return dump;
}

void MinidumpFile::report(const Error& problem) {
  if (problems.size() < kMaxProblems) problems.push_back(problem);
}

std::vector<MinidumpFile::Stream> MinidumpFile::read_directory(std::uint32_t count, std::uint32_t at) {
  constexpr std::uint64_t kEntry = 12;
  std::vector<Stream> streams;
  if (count > kMaxStreams) report(Error{ErrorCode::kLimit, "minidump promises too many streams", 8, count});
  count = std::min(count, kMaxStreams);
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto entry = file_.sub(at + i * kEntry, kEntry);
    if (!entry) {
      report(Error{ErrorCode::kTruncated, "directory reaches past the end of the file", at + i * kEntry, count});
      break;
    }
    const auto type = *entry->at<std::uint32_t>(0);
    // Only streams that are read are worth an error.
    const bool known = (type >= kThreadList && type <= kMemory64List) || type == kMiscInfo || type == kThreadNames ||
                       type == kLinuxStatus || type == kLinuxCommandLine || type == kLinuxMaps;
    if (known) streams.push_back({type, located(*entry, 4, "stream reaches past the end of the file")});
  }
  return streams;
}

ByteView MinidumpFile::located(ByteView from, std::uint64_t descriptor, const char* what) {
  const auto size = from.at<std::uint32_t>(descriptor);
  const auto rva = from.at<std::uint32_t>(descriptor + 4);
  if (!size || !rva || *size == 0) return {};
  const auto bytes = file_.sub(*rva, *size);
  if (bytes) return *bytes;
  report(Error{ErrorCode::kOutOfRange, what, *rva, *size});
  return *rva < file_.size() ? *file_.sub(*rva, file_.size() - *rva) : ByteView();
}

bool MinidumpFile::read_system(const std::vector<Stream>& streams) {
  for (const Stream& stream : streams) {
    if (stream.type != kSystemInfo) continue;
    const auto architecture = stream.bytes.at<std::uint16_t>(0);
    const auto platform = stream.bytes.at<std::uint32_t>(20);
    if (!architecture) continue;
    windows = platform && *platform == kWindowsNt;
    if (*architecture != kAmd64 && *architecture != kArm64 && *architecture != kArm64Breakpad) return false;
    machine = *architecture == kAmd64 ? Machine::kX86_64 : Machine::kAArch64;
    return true;
  }
  return false;
}

void MinidumpFile::read(const Stream& stream) {
  switch (stream.type) {
    case kThreadList: read_threads(stream, kThreadSize); break;
    case kThreadExList: read_threads(stream, kThreadExSize); break;
    case kThreadNames: read_thread_names(stream); break;
    case kModuleList: read_modules(stream); break;
    case kMemoryList: read_memory(stream); break;
    case kMemory64List: read_memory64(stream); break;
    case kException: read_exception(stream); break;
    case kLinuxStatus: read_linux_status(stream); break;
    case kLinuxMaps: linux_maps = stream.bytes; break;
    case kLinuxCommandLine: linux_command_line = stream.bytes; break;
    case kMiscInfo: {
      constexpr std::uint32_t kHasProcessId = 1;
      const auto flags = stream.bytes.at<std::uint32_t>(4);
      const auto id = stream.bytes.at<std::uint32_t>(8);
      if (flags && id && (*flags & kHasProcessId) != 0) process = *id;
      break;
    }
    default: break;
  }
}

// A u32 count and as many entries. Some writers put 4 bytes of padding behind the count, which shows in the stream's
// size.
template <typename Handle>
void MinidumpFile::each(const Stream& stream, std::uint64_t entry_size, const char* what, Handle handle) {
  const auto count = stream.bytes.at<std::uint32_t>(0);
  if (!count) {
    report(Error{ErrorCode::kTruncated, what, stream.bytes.origin(), stream.bytes.size()});
    return;
  }
  const std::uint64_t start = stream.bytes.size() == 8 + *count * entry_size ? 8 : 4;
  const std::uint64_t room = (stream.bytes.size() - std::min<std::uint64_t>(start, stream.bytes.size())) / entry_size;
  if (*count > room || *count > kMaxEntries) report(Error{ErrorCode::kMalformed, what, stream.bytes.origin(), *count});
  const std::uint64_t entries = std::min({std::uint64_t{*count}, room, kMaxEntries});
  for (std::uint64_t i = 0; i < entries; ++i) handle(*stream.bytes.sub(start + i * entry_size, entry_size));
}

void MinidumpFile::read_threads(const Stream& stream, std::uint64_t entry_size) {
  each(stream, entry_size, "thread list promises more threads than it holds", [&](ByteView entry) {
    if (threads.size() >= kMaxEntries) return;
    MinidumpThread thread;
    thread.id = *entry.at<std::uint32_t>(0);
    const auto stack_size = *entry.at<std::uint32_t>(32);
    if (stack_size != 0) add_memory(*entry.at<std::uint64_t>(24), *entry.at<std::uint32_t>(36), stack_size);
    thread.context = located(entry, 40, "context of a thread reaches past the end of the file");
    threads.push_back(std::move(thread));
  });
}

void MinidumpFile::read_thread_names(const Stream& stream) {
  std::vector<std::pair<std::uint32_t, MinidumpThread*>> by_id;
  for (MinidumpThread& thread : threads) by_id.emplace_back(thread.id, &thread);
  std::sort(by_id.begin(), by_id.end());
  each(stream, kThreadNameSize, "list of thread names promises more than it holds", [&](ByteView entry) {
    const auto id = *entry.at<std::uint32_t>(0);
    const auto found =
        std::lower_bound(by_id.begin(), by_id.end(), std::pair<std::uint32_t, MinidumpThread*>(id, nullptr));
    if (found != by_id.end() && found->first == id && found->second->name.empty())
      found->second->name = string_at(*entry.at<std::uint64_t>(4));
  });
}

void MinidumpFile::read_modules(const Stream& stream) {
  each(stream, kModuleSize, "module list promises more modules than it holds", [&](ByteView entry) {
    if (modules.size() >= kMaxModules) return;
    MinidumpModule module;
    module.begin = *entry.at<std::uint64_t>(0);
    const auto size = *entry.at<std::uint32_t>(8);
    if (size == 0 || module.begin > ~std::uint64_t{0} - size) {
      report(Error{ErrorCode::kMalformed, "module has no range", entry.origin(), module.begin});
      return;
    }
    module.end = module.begin + size;
    module.timestamp = *entry.at<std::uint32_t>(16);
    module.path = string_at(*entry.at<std::uint32_t>(20));
    const ByteView record = located(entry, 76, "CodeView record reaches past the end of the file");
    read_module_id(module, record);
    module.codeview_identity = codeview_identity(record);
    modules.push_back(std::move(module));
  });
}

// Breakpad's BpEL holds a build id as it is. RSDS holds a GUID; for ELF modules that is the first 16 bytes of the build
// id, the first three fields taken for little-endian numbers (Breakpad's older writers, Crashpad).
void MinidumpFile::read_module_id(MinidumpModule& module, ByteView record) const {
  constexpr std::uint64_t kLongestId = 64;
  const auto signature = record.at<std::uint32_t>(0);
  std::uint64_t size = 0;
  if (signature && *signature == kBreakpadElf) {
    size = std::min<std::uint64_t>(record.size() - 4, kLongestId);
    module.elf_id = true;
  } else if (signature && *signature == kRsds && record.size() >= 20) {
    size = 16;
  }
  for (std::uint64_t i = 0; i < size; ++i) module.build_id += fmt::format("{:02x}", record.u8()[4 + i]);
}

void MinidumpFile::read_memory(const Stream& stream) {
  each(stream, kMemorySize, "memory list promises more ranges than it holds", [&](ByteView entry) {
    add_memory(*entry.at<std::uint64_t>(0), *entry.at<std::uint32_t>(12), *entry.at<std::uint32_t>(8));
  });
}

// u64 count, u64 offset of the first range's bytes; count x {u64 address, u64 size}; the bytes one after the other.
void MinidumpFile::read_memory64(const Stream& stream) {
  const auto count = stream.bytes.at<std::uint64_t>(0);
  const auto base = stream.bytes.at<std::uint64_t>(8);
  if (!count || !base) {
    report(Error{ErrorCode::kTruncated, "Memory64List is too short", stream.bytes.origin(), stream.bytes.size()});
    return;
  }
  const std::uint64_t room = (stream.bytes.size() - 16) / kMemory64Size;
  if (*count > room || *count > kMaxEntries)
    report(
        Error{ErrorCode::kMalformed, "Memory64List promises more ranges than it holds", stream.bytes.origin(), *count});
  std::uint64_t rva = *base;
  for (std::uint64_t i = 0; i < std::min({*count, room, kMaxEntries}); ++i) {
    const auto begin = *stream.bytes.at<std::uint64_t>(16 + i * kMemory64Size);
    const auto size = *stream.bytes.at<std::uint64_t>(24 + i * kMemory64Size);
    if (rva > file_.size()) break;  // reported with the range before
    add_memory(begin, rva, size);
    if (size > ~std::uint64_t{0} - rva) break;
    rva += size;
  }
}

void MinidumpFile::read_exception(const Stream& stream) {
  constexpr std::uint64_t kSize = 168;
  const auto bytes = stream.bytes.sub(0, kSize);
  if (!bytes) {
    report(Error{ErrorCode::kTruncated, "exception stream is too short", stream.bytes.origin(), stream.bytes.size()});
    return;
  }
  MinidumpException found;
  found.thread = *bytes->at<std::uint32_t>(0);
  found.code = *bytes->at<std::uint32_t>(8);
  found.address = *bytes->at<std::uint64_t>(24);
  found.context = located(*bytes, 160, "context of the exception reaches past the end of the file");
  exception = found;
}

void MinidumpFile::read_linux_status(const Stream& stream) {
  const std::string_view text(reinterpret_cast<const char*>(stream.bytes.data()), stream.bytes.size());
  const auto at = text.find("\nPid:\t");
  if (at != std::string_view::npos) std::from_chars(text.data() + at + 6, text.data() + text.size(), process);
}

void MinidumpFile::add_memory(std::uint64_t begin, std::uint64_t rva, std::uint64_t size) {
  if (size == 0 || memory.size() >= 2 * kMaxEntries) return;
  const std::uint64_t room = rva < file_.size() ? file_.size() - rva : 0;
  if (size > room || begin > ~std::uint64_t{0} - size) {
    report(Error{ErrorCode::kOutOfRange, "memory reaches past the end of the file", rva, size});
    if (begin > ~std::uint64_t{0} - size) return;
  }
  if (room != 0) memory.push_back({begin, *file_.sub(rva, std::min(size, room))});
}

// MINIDUMP_STRING: u32 length in bytes, UTF-16.
std::string MinidumpFile::string_at(std::uint64_t rva) {
  constexpr std::uint32_t kLongest = 65536;
  const auto length = file_.at<std::uint32_t>(rva);
  const auto text = length ? file_.sub(rva + 4, std::min(*length, kLongest)) : Failure(length.error());
  if (text) return from_utf16(*text);
  report(Error{ErrorCode::kOutOfRange, "string reaches past the end of the file", rva, 0});
  return {};
}

}  // namespace windlass::image
