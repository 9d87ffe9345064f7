#include "runtimes/v8/image_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "base/registers.h"
#include "flow/stack_effect.h"
#include "runtimes/v8/described.h"

namespace windlass::runtimes::v8 {
namespace {

// JSEntry and its like save all that C++ wants kept first of all (builtins-x64.cc, Generate_JSEntryVariant).
bool saves_for_c(ByteView code, std::uint64_t address) {
  constexpr std::size_t kFirst = 64;
  unsigned saved = 0;
  windlass::flow::StraightCode line(code, address, kFirst);
  while (const auto effect = line.next())
    if (effect->kind == windlass::flow::StackEffect::Kind::kPush && effect->reg >= x86_64::kR12) ++saved;
  return !line.failed() && saved == 4;
}

Expected<Description> describe_builtin(ByteView code, std::uint64_t address, BuiltinFrame frame,
                                       const std::function<bool(std::uint64_t, void*, std::size_t)>& read) {
  const auto copy = [&] { return std::vector(code.data(), code.data() + code.size()); };
  switch (frame) {
    case BuiltinFrame::kThere: return describe_framed(copy(), address, 0);
    case BuiltinFrame::kContinued: return describe_continuation(code, address);
    case BuiltinFrame::kPushed: return describe_pushed(copy(), address);
    default: return describe_code(code, address, saves_for_c(code, address), read);
  }
}

}  // namespace

Expected<std::shared_ptr<const ImageFile>> ImageFile::open(MappedFile file, bool has_symbols) {
  static std::mutex lock;
  static std::map<std::string, std::weak_ptr<const ImageFile>> known;
  std::shared_ptr<ImageFile> made(new ImageFile(std::move(file)));
  if (const auto done = made->parse(); !done) return Failure(done.error());
  const std::string key = made->key();
  const std::lock_guard hold(lock);
  if (!key.empty())
    if (auto same = known[key].lock()) return same;
  if (const auto done = made->read_facts(has_symbols); !done) return Failure(done.error());
  if (!key.empty()) known[key] = made;
  return made;
}

Expected<void> ImageFile::parse() {
  if (image::PeImage::sniff(file_.bytes())) {
    auto image = image::PeImage::parse(file_.bytes());
    if (!image) return Failure(image.error());
    if (image->machine() != image::PeMachine::kAmd64)
      return fail(ErrorCode::kUnsupported, "code of a V8 for another machine", 0);
    pe_ = std::move(*image);
    return {};
  }
  auto image = image::ElfImage::parse(file_.bytes());
  if (!image) return Failure(image.error());
  elf_ = std::move(*image);
  return {};
}

Expected<void> ImageFile::read_facts(bool has_symbols) {
  auto facts = pe_           ? ImageFacts::read_pe(*pe_)
               : has_symbols ? ImageFacts::read(file_.bytes())
                             : ImageFacts::read_without_symbols(file_.bytes());
  if (!facts) return Failure(facts.error());
  if (facts->has_places_only()) {
    facts_ = std::move(*facts);
    return {};
  }
  const auto layout = Layout::make(*facts);
  if (!layout) return Failure(layout.error());
  facts_ = std::move(*facts);
  layout_ = *layout;
  find_deoptimizing();
  return {};
}

// Statically linked programs may have no build id.
std::string ImageFile::key() const {
  const std::string& id = pe_ ? pe_->build_id() : elf_->build_id();
  return id.empty() ? id : id + '-' + std::to_string(file_.bytes().size());
}

Expected<ByteView> ImageFile::at_address(std::uint64_t address, std::uint64_t size) const {
  if (elf_) return elf_->at_address(address, size);
  if (address >> 32 != 0) return fail(ErrorCode::kOutOfRange, "an RVA of more than 32 bits", address);
  return pe_->at_rva(static_cast<std::uint32_t>(address), size);
}

void ImageFile::find_deoptimizing() {
  for (const ImageFacts::Builtin& builtin : facts_.builtins()) {
    if (!builtin.name.starts_with("DeoptimizationEntry_")) continue;
    const auto bytes = at_address(builtin.begin, builtin.end - builtin.begin);
    const auto code = bytes ? Deoptimization::read(*bytes, builtin.begin) : std::nullopt;
    if (code) deoptimizing_.push_back({builtin, *code, code->expressions()});
  }
}

std::optional<std::uint64_t> ImageFile::bias_of(const os::ProcMap& map) const {
  constexpr std::uint64_t kPage = 4096;
  if (pe_) return map.offset == 0 ? std::optional(map.begin) : std::nullopt;  // where its headers are, it begins
  const auto address = elf_->address_of_file_offset(map.offset, map.executable, kPage);
  return address ? std::optional(map.begin - *address) : std::nullopt;
}

std::optional<std::uint64_t> ImageFile::copied_builtins(const Memory& memory, const os::ProcMap& map) const {
  constexpr std::uint64_t kPage = 4096, kParts = 16;
  const std::uint64_t first = facts_.code_begin(), size = facts_.code_end() - first;
  if (map.begin % kPage != 0 || size <= kPage || map.end - map.begin < size) return std::nullopt;
  std::array<std::byte, kPage> page;
  for (std::uint64_t i = 0; i < kParts; ++i) {
    const std::uint64_t offset = (size / kPage - 1) * i / (kParts - 1) * kPage;
    const auto in_file = at_address(first + offset, kPage);
    if (!in_file || !memory.read(map.begin + offset, page.data(), kPage) ||
        std::memcmp(page.data(), in_file->data(), kPage) != 0)
      return std::nullopt;
  }
  return map.begin - first;
}

std::shared_ptr<const Description> ImageFile::described(const ImageFacts::Builtin& builtin, BuiltinFrame frame) const {
  const std::lock_guard hold(lock_);
  const auto [found, is_new] = described_.try_emplace(builtin.begin);
  const auto code = at_address(builtin.begin, builtin.end - builtin.begin);
  if (!is_new || !code) return found->second;
  const auto read = [&](std::uint64_t address, void* to, std::size_t size) {
    const auto bytes = at_address(address, size);
    if (bytes) std::memcpy(to, bytes->data(), size);
    return bytes.has_value();
  };
  auto description = describe_builtin(*code, builtin.begin, frame, read);
  const auto left = std::ranges::find(deoptimizing_, builtin.begin, [](const auto& it) { return it.builtin.begin; });
  if (description && left != deoptimizing_.end())
    left->code.describe(
        ByteView(reinterpret_cast<const std::byte*>(left->expressions.data()), left->expressions.size()), *description);
  if (description) found->second = std::make_shared<Description>(std::move(*description));
  return found->second;
}

}  // namespace windlass::runtimes::v8
