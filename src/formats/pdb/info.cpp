#include "formats/pdb/info.h"

namespace windlass::pdb {
namespace {

// A hash table as PDB files store them (nmt.h, map.h): entry (offset of the name, stream) for each bit of a bit set.
class NamedStreams {
 public:
  NamedStreams(const Stream& stream, std::uint64_t at) : stream_(stream), at_(at) {}

  // Passes the whole table. Keeps the stream with this name.
  Expected<std::uint32_t> find(std::string_view name) {
    const auto text_size = word();
    if (!text_size) return Failure(text_size.error());
    const std::uint64_t text = at_;
    at_ += *text_size;
    const auto count = word();
    const auto capacity = word();
    const auto present = bits();
    const auto deleted = bits();
    if (!count || !capacity || !present || !deleted || *count > *present)
      return fail(ErrorCode::kMalformed, "PDB table of named streams is damaged", at_);
    std::uint32_t found = kNoStream;
    for (std::uint32_t i = 0; i < *count; ++i) {
      const auto key = word();
      const auto value = word();
      if (!key || !value) return fail(ErrorCode::kMalformed, "PDB table of named streams is cut", at_);
      if (stream_.string_at(text + *key, name.size() + 1) == name) found = *value;
    }
    return found;
  }
  [[nodiscard]] std::uint64_t end() const { return at_; }

 private:
  Expected<std::uint32_t> word() {
    const auto value = stream_.at<std::uint32_t>(at_);
    if (value) at_ += 4;
    return value;
  }
  // Passes a bit set. How many bits it has room for.
  Expected<std::uint64_t> bits() {
    const auto words = word();
    if (!words) return Failure(words.error());
    if (*words > (stream_.size() - at_) / 4) return fail(ErrorCode::kMalformed, "PDB bit set is cut", at_, *words);
    at_ += std::uint64_t{*words} * 4;
    return std::uint64_t{*words} * 32;
  }

  const Stream& stream_;
  std::uint64_t at_;
};

}  // namespace

Expected<Info> read_info(const MsfFile& file) {
  const Stream stream = file.stream(kInfoStream);
  const auto header = stream.at<InfoHeader>(0);
  if (!header) return Failure(header.error());
  Info info{.header = *header};
  NamedStreams named(stream, sizeof(InfoHeader));
  const auto names = named.find("/names");
  if (!names) return Failure(names.error());
  info.names_stream = *names;
  // An unused number, then the features up to the end.
  for (std::uint64_t at = named.end(); const auto feature = stream.at<std::uint32_t>(at); at += 4)
    info.minimal |= *feature == kMinimalDebugInfo;
  return info;
}

}  // namespace windlass::pdb
