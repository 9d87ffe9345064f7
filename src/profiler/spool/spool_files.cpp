#include "profiler/spool/spool_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "os/descriptor.h"
#include "os/write_all.h"
#include "profiler/store/content_hash.h"

namespace windlass::spool {
namespace {

constexpr std::string_view kMark = "WLSPOOL1";
constexpr std::string_view kUnfinished = ".new";
constexpr const char* kOpenings = "openings";
constexpr std::size_t kDigits = 16;
constexpr std::size_t kHashBytes = std::tuple_size_v<store::HashBytes>;
static_assert(kMark.size() + 2 * sizeof(std::uint64_t) + kHashBytes == kHeaderBytes);

Failure system_failure(const char* what) { return fail(ErrorCode::kSystem, what, 0, static_cast<unsigned>(errno)); }

std::string name_of(std::uint64_t sequence) {
  std::string name(kDigits, '0');
  std::array<char, kDigits> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), sequence, 16).ptr;
  std::copy_backward(digits.begin(), end, name.end());
  return name;
}

std::optional<std::uint64_t> sequence_of(std::string_view name) {
  std::uint64_t sequence = 0;
  const char* const begin = name.begin();
  const char* const end = name.end();
  const auto read = std::from_chars(begin, end, sequence, 16);
  if (name.size() != kDigits || read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return sequence;
}

// Up to `size` bytes; nothing: errno says why.
std::optional<std::string> read_up_to(int file, std::size_t size) {
  std::string bytes(size, '\0');
  std::size_t have = 0;
  while (have < size) {
    const ssize_t got = ::read(file, bytes.data() + have, size - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

// A file that is whole under its name, or is not there.
bool write_whole(int folder, const std::string& name, std::initializer_list<std::string_view> parts) {
  const std::string unfinished = name + std::string(kUnfinished);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  const os::Descriptor file(::openat(folder, unfinished.c_str(), kFlags, 0600));
  const auto write_part = [&](std::string_view part) { return os::write_all(file.get(), part); };
  if (file && std::ranges::all_of(parts, write_part) && ::fsync(file.get()) == 0 &&
      ::renameat(folder, unfinished.c_str(), folder, name.c_str()) == 0) {
    if (::fsync(folder) == 0) return true;
    const int reason = errno;
    ::unlinkat(folder, name.c_str(), 0);
    errno = reason;
    return false;
  }
  const int reason = errno;
  ::unlinkat(folder, unfinished.c_str(), 0);
  errno = reason;
  return false;
}

std::string bytes_of(std::uint64_t number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);  // read again by this machine
  return bytes;
}

std::uint64_t number_at(std::string_view bytes, std::size_t at) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

std::string hash_of(const BatchHeader& header, std::string_view bytes) {
  const store::HashBytes hash = store::ContentHash().add(header.length).add(header.samples).add(bytes).bytes();
  return {reinterpret_cast<const char*>(hash.data()), hash.size()};
}

std::optional<BatchHeader> header_in(std::string_view bytes) {
  if (bytes.size() < kHeaderBytes || !bytes.starts_with(kMark)) return std::nullopt;
  return BatchHeader{.length = number_at(bytes, kMark.size()), .samples = number_at(bytes, kMark.size() + 8)};
}

// Of a batch; the size of its file.
Expected<std::uint64_t> open_batch(int folder, std::uint64_t sequence, os::Descriptor& to) {
  to = os::Descriptor(::openat(folder, name_of(sequence).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!to || ::fstat(to.get(), &status) != 0) return system_failure("a batch of the spool cannot be read");
  return S_ISREG(status.st_mode) ? static_cast<std::uint64_t>(status.st_size) : 0;
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

}  // namespace

Expected<ListedFolder> list_batches(int folder) {
  const int again = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, CloseFolder> entries(again < 0 ? nullptr : ::fdopendir(again));
  if (!entries) return system_failure("the folder of the spool cannot be read");
  ListedFolder listed;
  while (const dirent* entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name.ends_with(kUnfinished)) {
      if (sequence_of(name.substr(0, name.size() - kUnfinished.size()))) listed.unfinished.emplace_back(name);
      continue;
    }
    struct stat status {};
    const auto sequence = sequence_of(name);
    if (sequence && ::fstatat(folder, entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode))
      listed.batches.push_back({*sequence, static_cast<std::uint64_t>(status.st_size)});
  }
  std::ranges::sort(listed.batches, {}, &ListedBatch::sequence);
  return listed;
}

Expected<void> write_batch(int folder, std::uint64_t sequence, std::string_view bytes, std::uint64_t samples) {
  const BatchHeader header{.length = bytes.size(), .samples = samples};
  const std::string hash = hash_of(header, bytes);
  if (!write_whole(folder, name_of(sequence), {kMark, bytes_of(header.length), bytes_of(header.samples), hash, bytes}))
    return system_failure("a batch cannot be written into the spool");
  return {};
}

Expected<std::optional<BatchHeader>> read_header(int folder, std::uint64_t sequence) {
  os::Descriptor file;
  if (const auto size = open_batch(folder, sequence, file); !size) return Failure(size.error());
  const auto bytes = read_up_to(file.get(), kHeaderBytes);
  if (!bytes) return system_failure("a batch of the spool cannot be read");
  return header_in(*bytes);
}

Expected<std::optional<ReadBatch>> read_batch(int folder, std::uint64_t sequence) {
  os::Descriptor file;
  const auto size = open_batch(folder, sequence, file);
  if (!size) return Failure(size.error());
  auto bytes = read_up_to(file.get(), *size);
  if (!bytes) return system_failure("a batch of the spool cannot be read");
  const auto header = header_in(*bytes);
  if (!header || bytes->size() - kHeaderBytes != header->length) return std::optional<ReadBatch>();
  const std::string hash = bytes->substr(kHeaderBytes - kHashBytes, kHashBytes);
  bytes->erase(0, kHeaderBytes);
  if (hash != hash_of(*header, *bytes)) return std::optional<ReadBatch>();
  return std::optional<ReadBatch>({*header, std::move(*bytes)});
}

void delete_batch(int folder, std::uint64_t sequence) { ::unlinkat(folder, name_of(sequence).c_str(), 0); }

Expected<std::uint32_t> count_opening(int folder, std::uint32_t at_least) {
  std::uint32_t before = 0;
  if (const os::Descriptor file(::openat(folder, kOpenings, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)); file)
    if (const auto text = read_up_to(file.get(), kDigits))
      std::from_chars(text->data(), text->data() + text->size(), before);
  const std::uint32_t now = std::max(before + 1, at_least);
  if (!write_whole(folder, kOpenings, {std::to_string(now)}))
    return system_failure("the folder of the spool cannot be written");
  return now;
}

}  // namespace windlass::spool
