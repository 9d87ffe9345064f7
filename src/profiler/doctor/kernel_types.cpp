#include "profiler/doctor/kernel_types.h"

#include <fcntl.h>
#include <linux/btf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <unordered_map>
#include <utility>

namespace windlass::profiler {
namespace {

std::uint32_t kind_of(const btf_type& type) { return BTF_INFO_KIND(type.info); }

// The bytes behind a type; nothing for a kind that is not known.
std::optional<std::size_t> extra_bytes(const btf_type& type) {
  const std::size_t count = BTF_INFO_VLEN(type.info);
  switch (kind_of(type)) {
    case BTF_KIND_INT: return 4;
    case BTF_KIND_ARRAY: return sizeof(btf_array);
    case BTF_KIND_STRUCT:
    case BTF_KIND_UNION: return count * sizeof(btf_member);
    case BTF_KIND_ENUM: return count * sizeof(btf_enum);
    case BTF_KIND_ENUM64: return count * sizeof(btf_enum64);
    case BTF_KIND_FUNC_PROTO: return count * sizeof(btf_param);
    case BTF_KIND_VAR: return sizeof(btf_var);
    case BTF_KIND_DATASEC: return count * sizeof(btf_var_secinfo);
    case BTF_KIND_DECL_TAG: return sizeof(btf_decl_tag);
    case BTF_KIND_PTR:
    case BTF_KIND_FWD:
    case BTF_KIND_TYPEDEF:
    case BTF_KIND_VOLATILE:
    case BTF_KIND_CONST:
    case BTF_KIND_RESTRICT:
    case BTF_KIND_FUNC:
    case BTF_KIND_FLOAT:
    case BTF_KIND_TYPE_TAG: return 0;
    default: return std::nullopt;
  }
}

template <typename T>
T get(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void put(std::vector<std::byte>& to, const T& value) {
  const std::size_t at = to.size();
  to.resize(at + sizeof value);
  std::memcpy(to.data() + at, &value, sizeof value);
}

struct Sections {
  std::span<const std::byte> types;
  std::string_view strings;
};

std::optional<Sections> sections(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(btf_header)) return std::nullopt;
  const auto header = get<btf_header>(bytes.data());
  if (header.magic != BTF_MAGIC || header.hdr_len > bytes.size()) return std::nullopt;
  bytes = bytes.subspan(header.hdr_len);
  const auto inside = [&](std::uint32_t offset, std::uint32_t size) {
    return offset <= bytes.size() && size <= bytes.size() - offset;
  };
  if (!inside(header.type_off, header.type_len) || !inside(header.str_off, header.str_len)) return std::nullopt;
  const std::string_view strings(reinterpret_cast<const char*>(bytes.data()) + header.str_off, header.str_len);
  if (strings.empty() || strings.back() != '\0') return std::nullopt;
  return Sections{bytes.subspan(header.type_off, header.type_len), strings};
}

// Calls f(number, type, offset) for each type until f returns false. False if a type is malformed.
template <typename F>
bool for_each_type(std::span<const std::byte> types, F f) {
  std::uint32_t number = 1;
  for (std::size_t at = 0; at != types.size(); ++number) {
    if (types.size() - at < sizeof(btf_type)) return false;
    const auto type = get<btf_type>(types.data() + at);
    const auto extra = extra_bytes(type);
    if (!extra || types.size() - at - sizeof type < *extra) return false;
    if (!f(number, type, at)) return true;
    at += sizeof type + *extra;
  }
  return true;
}

// Copies types and what they refer to, each once.
class Copy {
 public:
  Copy(const Sections& from, std::vector<std::size_t> offsets) : from_(from), offsets_(std::move(offsets)) {}

  // The number in the copy.
  std::uint32_t add(std::uint32_t number) {
    if (number == 0) return 0;
    const auto [known, added] = numbers_.try_emplace(number, static_cast<std::uint32_t>(order_.size()) + 1);
    if (added) order_.push_back(number);
    return known->second;
  }
  std::optional<std::vector<std::byte>> finish();

 private:
  bool write(std::uint32_t number);
  std::uint32_t text(std::uint32_t offset);

  const Sections from_;
  const std::vector<std::size_t> offsets_;  // of each type, by its number
  std::unordered_map<std::uint32_t, std::uint32_t> numbers_;
  std::vector<std::uint32_t> order_;
  std::vector<std::byte> types_;
  std::string strings_ = std::string(1, '\0');
};

std::uint32_t Copy::text(std::uint32_t offset) {
  if (offset == 0 || offset >= from_.strings.size()) return 0;
  const auto begin = static_cast<std::uint32_t>(strings_.size());
  strings_.append(from_.strings.data() + offset).push_back('\0');
  return begin;
}

bool Copy::write(std::uint32_t number) {
  if (number >= offsets_.size()) return false;
  const std::byte* at = from_.types.data() + offsets_[number];
  auto type = get<btf_type>(at);
  at += sizeof type;
  type.name_off = text(type.name_off);
  switch (kind_of(type)) {
    case BTF_KIND_INT:
      put(types_, type);
      put(types_, get<std::uint32_t>(at));
      return true;
    case BTF_KIND_ARRAY: {
      auto array = get<btf_array>(at);
      array.type = add(array.type);
      array.index_type = add(array.index_type);
      put(types_, type);
      put(types_, array);
      return true;
    }
    case BTF_KIND_STRUCT:
    case BTF_KIND_UNION:
      put(types_, type);
      for (std::uint32_t i = 0; i < BTF_INFO_VLEN(type.info); ++i) {
        auto member = get<btf_member>(at + i * sizeof(btf_member));
        member.name_off = text(member.name_off);
        member.type = add(member.type);
        put(types_, member);
      }
      return true;
    case BTF_KIND_ENUM:
    case BTF_KIND_ENUM64:
      type.info &= ~0xffffu;  // the size matters, the values do not
      put(types_, type);
      return true;
    case BTF_KIND_PTR:
      type.type = 0;
      put(types_, type);
      return true;
    case BTF_KIND_TYPEDEF:
    case BTF_KIND_VOLATILE:
    case BTF_KIND_CONST:
    case BTF_KIND_RESTRICT:
    case BTF_KIND_TYPE_TAG:
      type.type = add(type.type);
      put(types_, type);
      return true;
    case BTF_KIND_FWD:
    case BTF_KIND_FLOAT: put(types_, type); return true;
    default: return false;  // cannot lie in a struct
  }
}

std::optional<std::vector<std::byte>> Copy::finish() {
  for (std::size_t next = 0; next != order_.size();)  // writing one may add others
    if (!write(order_[next++])) return std::nullopt;
  btf_header header{};
  header.magic = BTF_MAGIC;
  header.version = BTF_VERSION;
  header.hdr_len = sizeof header;
  header.type_len = static_cast<std::uint32_t>(types_.size());
  header.str_off = header.type_len;
  header.str_len = static_cast<std::uint32_t>(strings_.size());
  std::vector<std::byte> whole;
  put(whole, header);
  whole.insert(whole.end(), types_.begin(), types_.end());
  const auto* text = reinterpret_cast<const std::byte*>(strings_.data());
  whole.insert(whole.end(), text, text + strings_.size());
  return whole;
}

}  // namespace

std::optional<KernelTypes> KernelTypes::read(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  // Linux 6.16 and newer map it. Others give a page at a read.
  if (auto mapped = MappedFile::from_fd(file); mapped && !mapped->bytes().empty()) {
    close(file);
    return KernelTypes(std::move(*mapped));
  }
  struct stat status {};
  std::vector<std::byte> bytes;
  if (fstat(file, &status) == 0 && status.st_size > 0) bytes.resize(static_cast<std::size_t>(status.st_size));
  std::size_t size = 0;
  for (ssize_t got = 1; got > 0 && size < bytes.size(); size += static_cast<std::size_t>(std::max<ssize_t>(got, 0)))
    got = ::read(file, bytes.data() + size, bytes.size() - size);
  close(file);
  if (size == 0 || size != bytes.size()) return std::nullopt;
  return KernelTypes(std::move(bytes));
}

std::uint32_t KernelTypes::function(std::string_view name) const {
  const auto all = sections(bytes());
  if (!all) return 0;
  std::uint32_t found = 0;
  (void)for_each_type(all->types, [&](std::uint32_t number, const btf_type& type, std::size_t) {
    if (kind_of(type) == BTF_KIND_FUNC && type.name_off < all->strings.size() &&
        name == all->strings.data() + type.name_off)
      found = number;
    return found == 0;
  });
  return found;
}

std::optional<std::vector<std::byte>> KernelTypes::only(const std::set<std::string, std::less<>>& names) const {
  const auto all = sections(bytes());
  if (!all) return std::nullopt;
  std::vector<std::size_t> offsets{0};
  std::vector<std::uint32_t> wanted;
  const bool whole = for_each_type(all->types, [&](std::uint32_t number, const btf_type& type, std::size_t offset) {
    offsets.push_back(offset);
    const std::uint32_t kind = kind_of(type);
    if ((kind == BTF_KIND_STRUCT || kind == BTF_KIND_UNION) && type.name_off != 0 &&
        type.name_off < all->strings.size() && names.contains(std::string_view(all->strings.data() + type.name_off)))
      wanted.push_back(number);
    return true;
  });
  if (!whole) return std::nullopt;
  Copy copy(*all, std::move(offsets));
  for (const std::uint32_t number : wanted) copy.add(number);
  return copy.finish();
}

}  // namespace windlass::profiler
