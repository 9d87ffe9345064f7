#include "formats/image/ready_to_run.h"

#include <algorithm>
#include <optional>

namespace windlass::image {
namespace {

constexpr std::uint32_t kReadyToRun = 0x00525452;  // "RTR"
constexpr std::uint32_t kManagedNative = 64;       // of the CLI header (ECMA-335 II.25.3.3): ManagedNativeHeader
constexpr std::uint32_t kRuntimeFunctions = 102, kMethodEntries = 103, kInstanceEntries = 109;  // kinds of sections
constexpr std::uint32_t kMostSections = 256;

struct ReadyToRunSection {
  std::uint32_t kind, rva, size;
};
static_assert(sizeof(ReadyToRunSection) == 12);

// Numbers of NativeFormat: the low bits of the first byte say how many bytes there are. A read behind the end fails for
// good.
class NativeNumbers {
 public:
  NativeNumbers(ByteView bytes, std::uint64_t at) : bytes_(bytes), at_(at) {}

  [[nodiscard]] std::uint64_t at() const { return at_; }
  [[nodiscard]] bool failed() const { return failed_; }
  void go_to(std::uint64_t at) { at_ = at; }

  template <typename T>
  T fixed() {
    const auto value = bytes_.at<T>(at_);
    failed_ |= !value;
    at_ += sizeof(T);
    return value.value_or(T{});
  }
  std::uint32_t number() {
    const auto first = fixed<std::uint8_t>();
    for (unsigned more = 0; more < 4; ++more) {
      if ((first >> more & 1) != 0) continue;
      std::uint32_t value = first >> (more + 1);
      for (unsigned i = 0; i < more; ++i) value |= std::uint32_t{fixed<std::uint8_t>()} << (7 - more + 8 * i);
      return value;
    }
    return fixed<std::uint32_t>();
  }
  std::int32_t signed_number() {
    const std::uint64_t from = at_;
    const std::uint32_t value = number();
    const unsigned bits = std::min(7U * static_cast<unsigned>(at_ - from), 32U);
    return static_cast<std::int32_t>(value << (32 - bits)) >> (32 - bits);
  }
  // ECMA-335 II.23.2.
  std::uint32_t compressed() {
    const auto first = fixed<std::uint8_t>();
    if ((first & 0x80) == 0) return first;
    const std::uint32_t second = fixed<std::uint8_t>();
    if ((first & 0x40) == 0) return (first & 0x3fU) << 8 | second;
    const std::uint32_t third = fixed<std::uint8_t>();
    return (first & 0x1fU) << 24 | second << 16 | third << 8 | fixed<std::uint8_t>();
  }

 private:
  ByteView bytes_;
  std::uint64_t at_;
  bool failed_ = false;
};

// The signature of a type, which is skipped. `elsewhere`: it is of another module.
class TypeSkipper {
 public:
  explicit TypeSkipper(NativeNumbers& numbers) : numbers_(numbers) {}

  bool skip(unsigned depth = 0) {
    enum : std::uint8_t {  // ECMA-335 II.23.1.16, and from kVarZap on the runtime's own
      kLastSimple = 0x0e,
      kPointer,
      kByRef,
      kValueType,
      kClass,
      kVar,
      kArray,
      kGeneric,
      kTypedByRef,
      kInt = 0x18,
      kUnsigned,
      kFunction = 0x1b,
      kObject,
      kVector,
      kMethodVar,
      kVarZap = 0x3b,
      kNativeValueZap = 0x3d,
      kCanonZap,
      kModuleZap,
    };
    constexpr unsigned kDeepest = 64;
    if (depth > kDeepest || numbers_.failed()) return false;
    const auto kind = numbers_.fixed<std::uint8_t>();
    switch (kind) {
      case kValueType:
      case kClass:
      case kVar:
      case kMethodVar:
      case kVarZap: numbers_.compressed(); return true;
      case kModuleZap: numbers_.compressed(); return skip(depth + 1);
      case kPointer:
      case kByRef:
      case kVector:
      case kNativeValueZap: return skip(depth + 1);
      case kGeneric: return skip(depth + 1) && skip_all(numbers_.compressed(), depth + 1);
      case kArray:
        if (!skip(depth + 1)) return false;
        numbers_.compressed();
        return skip_numbers() && skip_numbers();
      case kFunction: {
        numbers_.fixed<std::uint8_t>();
        const std::uint32_t count = numbers_.compressed();
        return skip(depth + 1) && skip_all(count, depth + 1);
      }
      case kTypedByRef:
      case kInt:
      case kUnsigned:
      case kObject:
      case kCanonZap: return true;
      default: return kind != 0 && kind <= kLastSimple;
    }
  }
  bool skip_all(std::uint32_t count, unsigned depth) {
    for (; count != 0; --count)
      if (!skip(depth)) return false;
    return true;
  }

 private:
  bool skip_numbers() {
    for (std::uint32_t count = numbers_.compressed(); count != 0 && !numbers_.failed(); --count) numbers_.compressed();
    return !numbers_.failed();
  }
  NativeNumbers& numbers_;
};

class ReadyToRunReader {
 public:
  explicit ReadyToRunReader(const PeImage& image) : image_(image) {}

  Expected<std::vector<CompiledMethod>> read() {
    if (const auto sections = read_sections(); !sections) return Failure(sections.error());
    if (functions_.size() < sizeof(std::uint32_t)) return fail(ErrorCode::kNotFound, "no code compiled ahead", 0);
    each_method();
    each_instance();
    std::ranges::stable_sort(found_, {}, &CompiledMethod::rva);
    const auto same = std::ranges::unique(found_, {}, &CompiledMethod::rva);
    found_.erase(same.begin(), same.end());
    return std::move(found_);
  }

 private:
  Expected<void> read_sections() {
    const RvaRange cli = image_.directory(PeDirectory::kClrHeader);
    const auto place = cli.rva != 0 ? image_.value_at_rva<std::uint32_t>(cli.rva + kManagedNative) : std::uint32_t{0};
    if (!place) return Failure(place.error());
    if (*place == 0) return fail(ErrorCode::kNotFound, "no code compiled ahead", 0);
    struct Header {
      std::uint32_t magic;
      std::uint16_t major, minor;
      std::uint32_t flags, sections;
    };
    const auto header = image_.value_at_rva<Header>(*place);
    if (!header) return Failure(header.error());
    if (header->magic != kReadyToRun || header->sections > kMostSections)
      return fail(ErrorCode::kMalformed, "no header of code compiled ahead: RVA", *place);
    for (std::uint32_t i = 0; i < header->sections; ++i) {
      const auto section =
          image_.value_at_rva<ReadyToRunSection>(*place + sizeof(Header) + i * sizeof(ReadyToRunSection));
      if (!section) return Failure(section.error());
      ByteView* const wanted = section->kind == kRuntimeFunctions  ? &functions_
                               : section->kind == kMethodEntries   ? &methods_
                               : section->kind == kInstanceEntries ? &instances_
                                                                   : nullptr;
      if (wanted == nullptr) continue;
      const auto bytes = image_.at_rva(section->rva, section->size);
      if (!bytes) return Failure(bytes.error());
      *wanted = *bytes;
    }
    return {};
  }

  void add(std::uint32_t function, std::uint32_t method) {
    const std::uint64_t entry = image_.machine() == PeMachine::kAmd64 ? 12 : 8;
    if (const auto rva = functions_.at<std::uint32_t>(function * entry)) found_.push_back({*rva, method});
  }
  // What stands behind a method's place: the number of its first function, and whether it needs fixups.
  void add_entry(NativeNumbers& numbers, std::uint32_t method) {
    const std::uint32_t id = numbers.number();
    if (!numbers.failed()) add((id & 1) != 0 ? id >> 2 : id >> 1, method);
  }

  // An array of trees of 16 methods each (NativeArray).
  void each_method() {
    constexpr std::uint32_t kBlock = 16;
    if (methods_.empty()) return;
    NativeNumbers start(methods_, 0);
    const std::uint32_t head = start.number(), count = std::min<std::uint64_t>(head >> 2, 8 * methods_.size());
    const unsigned size = 1U << std::min(head & 3, 2U);
    for (std::uint32_t i = 0; i < count && !start.failed(); ++i) {
      NativeNumbers place(methods_, start.at() + std::uint64_t{i / kBlock} * size);
      const std::uint32_t offset = size == 1   ? place.fixed<std::uint8_t>()
                                   : size == 2 ? place.fixed<std::uint16_t>()
                                               : place.fixed<std::uint32_t>();
      if (place.failed()) return;
      NativeNumbers numbers(methods_, start.at() + offset);
      if (find_in_block(numbers, i % kBlock)) add_entry(numbers, i + 1);
    }
  }
  static bool find_in_block(NativeNumbers& numbers, std::uint32_t index) {
    constexpr std::uint32_t kFirstBit = 8, kLeft = 1, kRight = 2;
    for (std::uint32_t bit = kFirstBit; bit != 0; bit >>= 1) {
      const std::uint64_t node = numbers.at();
      const std::uint32_t value = numbers.number();
      if (numbers.failed()) return false;
      if ((index & bit) != 0 && (value & kRight) != 0) {
        numbers.go_to(node + (value >> 2));
      } else if ((index & bit) == 0 && (value & kLeft) != 0) {
        continue;
      } else {
        return (value & (kLeft | kRight)) == 0 && value >> 2 == index;  // the only one of the block
      }
    }
    return true;
  }

  // A hash table (NativeHashtable): buckets of {the hash's low byte, the distance to the entry}.
  void each_instance() {
    if (instances_.empty()) return;
    NativeNumbers start(instances_, 0);
    const auto head = start.fixed<std::uint8_t>();
    const unsigned size = 1U << std::min(head & 3, 2);
    const std::uint64_t base = start.at();
    if (head >> 2 > 24) return;
    const auto bucket = [&](std::uint64_t number) {
      NativeNumbers place(instances_, base + number * size);
      return size == 1   ? std::uint32_t{place.fixed<std::uint8_t>()}
             : size == 2 ? std::uint32_t{place.fixed<std::uint16_t>()}
                         : place.fixed<std::uint32_t>();
    };
    const std::uint64_t buckets = std::min(std::uint64_t{1} << (head >> 2), instances_.size() / size);
    std::uint64_t read = 0;
    for (std::uint64_t i = 0; i < buckets && read < instances_.size(); ++i) {
      NativeNumbers numbers(instances_, base + bucket(i));
      const std::uint64_t end = base + bucket(i + 1);
      while (numbers.at() < end && !numbers.failed() && read++ < instances_.size()) {
        numbers.fixed<std::uint8_t>();
        const std::uint64_t from = numbers.at();
        NativeNumbers entry(instances_, from + static_cast<std::uint64_t>(std::int64_t{numbers.signed_number()}));
        add_instance(entry);
      }
    }
  }

  void add_instance(NativeNumbers& entry) {
    enum : std::uint32_t {  // ReadyToRunMethodSigFlags
      kInstantiated = 0x04,
      kMemberRef = 0x10,
      kConstrained = 0x20,
      kOwner = 0x40,
      kOtherModule = 0x80,
    };
    TypeSkipper types(entry);
    const std::uint32_t flags = entry.compressed();
    if ((flags & kOtherModule) != 0) entry.compressed();
    if ((flags & kOwner) != 0 && !types.skip()) return;
    const std::uint32_t row = entry.compressed();
    if ((flags & kInstantiated) != 0 && !types.skip_all(entry.compressed(), 0)) return;
    if ((flags & kConstrained) != 0 && !types.skip()) return;
    if (!entry.failed()) add_entry(entry, (flags & (kMemberRef | kOtherModule)) == 0 ? row : 0);
  }

  const PeImage& image_;
  ByteView functions_, methods_, instances_;
  std::vector<CompiledMethod> found_;
};

}  // namespace

Expected<std::vector<CompiledMethod>> compiled_methods(const PeImage& image) { return ReadyToRunReader(image).read(); }

}  // namespace windlass::image
