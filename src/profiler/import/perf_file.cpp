#include "profiler/import/perf_file.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "profiler/import/perf_layout.h"

namespace windlass::importer {
namespace {

constexpr std::size_t kMostAttrs = 64;  // each becomes an event

struct FileSection {
  std::uint64_t offset, size;
};
struct FileHeader {
  std::uint64_t magic, size, attr_size;
  FileSection attrs, data, event_types;
  std::uint64_t features[4];
};
static_assert(sizeof(FileHeader) == 104);
constexpr std::uint64_t kStreamHeader = 16;

std::string_view text_of(ByteView bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.substr(0, text.find('\0'));
}

// u32 length, then so many bytes, of which zeroes follow the text.
Expected<std::string> counted_text(ByteView bytes, std::uint64_t& at) {
  const auto size = bytes.at<std::uint32_t>(at);
  if (!size) return Failure(size.error());
  const auto text = bytes.sub(at + 4, *size);
  if (!text) return Failure(text.error());
  at += 4 + std::uint64_t{*size};
  return std::string(text_of(*text));
}

class PerfFileReader {
 public:
  PerfFileReader(ByteView bytes, const Limits& limits) : bytes_(bytes), limits_(limits) {}

  Expected<PerfFile> read() {
    if (const auto done = read_all(); !done) return Failure(done.error());
    if (file_.attrs.empty()) return fail(ErrorCode::kMalformed, "the recording describes no event", 0);
    for (std::uint32_t i = 0; i < file_.attrs.size(); ++i)
      for (const std::uint64_t id : file_.attrs[i].ids) file_.attr_of_id.try_emplace(id, i);
    if (const auto done = index_decompressed(); !done) return Failure(done.error());
    for (PerfRecord& record : file_.records) record.time = time_of(record.bytes);
    std::ranges::stable_sort(file_.records, {}, &PerfRecord::time);
    return std::move(file_);
  }

 private:
  Expected<void> read_all() {
    const std::string_view begin(reinterpret_cast<const char*>(bytes_.data()), std::min<std::size_t>(bytes_.size(), 8));
    if (begin == kPerfOtherOrder)
      return fail(ErrorCode::kUnsupported,
                  "a recording of a big-endian machine: perf script on that machine makes a text that can be read", 0);
    if (begin != kPerfMagic) return fail(ErrorCode::kMalformed, "not a recording of perf", 0);
    const auto size = bytes_.at<std::uint64_t>(8);
    if (!size) return Failure(size.error());
    if (*size == kStreamHeader) return read_records(*bytes_.sub(kStreamHeader, bytes_.size() - kStreamHeader));
    const auto header = bytes_.at<FileHeader>(0);
    if (!header) return Failure(header.error());
    if (const auto done = read_attrs(*header); !done) return done;
    if (header->data.size == 0)
      return fail(ErrorCode::kTruncated, "the recording was not ended: perf wrote no size of its data", 40);
    const auto data = bytes_.sub(header->data.offset, header->data.size);
    if (!data) return fail(ErrorCode::kTruncated, "the file ends before its records do", header->data.offset);
    if (const auto done = read_records(*data); !done) return done;
    return read_features(*header);
  }

  Expected<void> read_attrs(const FileHeader& header) {
    const std::uint64_t size = header.attr_size;
    if (size < 64 + sizeof(FileSection) || size > 4096)
      return fail(ErrorCode::kMalformed, "size of an event's attributes", 16, size);
    const auto section = bytes_.sub(header.attrs.offset, header.attrs.size);
    if (!section) return Failure(section.error());
    for (std::uint64_t at = 0; at + size <= section->size(); at += size) {
      const auto ids = section->at<FileSection>(at + size - sizeof(FileSection));
      const auto list = bytes_.sub(ids->offset, ids->size);
      if (!list) return Failure(list.error());
      const auto added = add_attr(*section->sub(at, size - sizeof(FileSection)), *list);
      if (!added) return added;
    }
    return {};
  }

  Expected<void> add_attr(ByteView attr, ByteView ids) {
    if (file_.attrs.size() == kMostAttrs)
      return fail(ErrorCode::kLimit, "more events than the limit", attr.origin(), kMostAttrs);
    PerfAttr added;
    const auto word = [&](std::uint64_t at) {
      return attr.at<std::uint64_t>(at).value_or(0);
    };  // older ones are shorter
    added.type = attr.at<std::uint32_t>(0).value_or(0);
    added.config = word(8);
    added.period = word(16);
    added.sample_type = word(24);
    added.read_format = word(32);
    added.flags = word(40);
    added.branch_sample_type = word(72);
    added.regs_user = word(80);
    for (std::uint64_t at = 0; at + 8 <= ids.size(); at += 8) added.ids.push_back(*ids.at<std::uint64_t>(at));
    file_.attrs.push_back(std::move(added));
    return {};
  }

  Expected<void> count_record() {
    if (file_.records.size() < limits_.max_items) return {};
    return fail(ErrorCode::kLimit, "more records than the limit", 0, limits_.max_items);
  }

  Expected<void> read_records(ByteView data) {
    for (std::uint64_t at = 0; at < data.size();) {
      const auto header = data.at<PerfHeader>(at);
      if (!header) return fail(ErrorCode::kTruncated, "a record is cut off", data.origin() + at);
      if (header->size < sizeof(PerfHeader))
        return fail(ErrorCode::kMalformed, "a record is smaller than its header", data.origin() + at, header->size);
      const auto record = data.sub(at, header->size);
      if (!record) return fail(ErrorCode::kTruncated, "a record is cut off", data.origin() + at, header->size);
      std::uint64_t behind = 0;
      const auto done = header->type < kPerfFirstOfTool ? add_record(*record) : tool_record(*header, *record, behind);
      if (!done) return done;
      if (behind > data.size() - at - header->size)
        return fail(ErrorCode::kTruncated, "the bytes behind a record are cut off", data.origin() + at, behind);
      at += header->size + behind;
    }
    return {};
  }
  Expected<void> add_record(ByteView record) {
    file_.records.push_back({0, record});
    return count_record();
  }

  // `behind`: bytes that follow and are not counted in the header.
  Expected<void> tool_record(const PerfHeader& header, ByteView record, std::uint64_t& behind) {
    switch (header.type) {
      case kPerfAttrRecord: {
        const auto size = record.at<std::uint32_t>(12);  // perf_event_attr.size
        if (!size || *size < 64 || *size > record.size() - 8)
          return fail(ErrorCode::kMalformed, "size of an event's attributes", record.origin());
        return add_attr(*record.sub(8, *size), *record.sub(8 + std::uint64_t{*size}, record.size() - 8 - *size));
      }
      case kPerfTracingData: behind = (std::uint64_t{record.at<std::uint32_t>(8).value_or(0)} + 7) & ~7ull; return {};
      case kPerfAuxtrace: behind = record.at<std::uint64_t>(8).value_or(0); return {};
      case kPerfBuildId: return add_build_id(record);
      case kPerfEventUpdate: return update_event(record);
      case kPerfFeature: {
        const auto feature = record.at<std::uint64_t>(8);
        if (!feature) return Failure(feature.error());
        return read_feature(static_cast<std::uint32_t>(std::min<std::uint64_t>(*feature, 255)),
                            *record.sub(16, record.size() - 16));
      }
      case kPerfCompressed: return decompress(*record.sub(8, record.size() - 8));
      case kPerfCompressed2: {
        const auto size = record.at<std::uint64_t>(8);
        if (!size) return Failure(size.error());
        const auto data = record.sub(16, *size);
        return data ? decompress(*data) : Failure(data.error());
      }
      default: return {};
    }
  }

  // The records are one stream: what begins in one record may end in the next.
  Expected<void> decompress(ByteView data) {
    if (stream_ == nullptr) stream_.reset(ZSTD_createDStream());
    if (stream_ == nullptr) return fail(ErrorCode::kLimit, "out of memory", data.origin());
    std::vector<std::byte>& to = file_.decompressed;
    ZSTD_inBuffer in{data.data(), data.size(), 0};
    std::vector<std::byte> piece(ZSTD_DStreamOutSize());
    for (bool more = true; more;) {
      ZSTD_outBuffer out{piece.data(), piece.size(), 0};
      const std::size_t result = ZSTD_decompressStream(stream_.get(), &out, &in);
      if (ZSTD_isError(result) != 0)
        return fail(ErrorCode::kMalformed, "compressed records are damaged", data.origin() + in.pos);
      if (to.size() + out.pos > limits_.max_record_bytes)
        return fail(ErrorCode::kLimit, "decompressed records are larger than the limit", data.origin(),
                    limits_.max_record_bytes);
      to.insert(to.end(), piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(out.pos));
      more = in.pos < in.size || out.pos == out.size;
    }
    return {};
  }
  Expected<void> index_decompressed() {
    const ByteView all(file_.decompressed.data(), file_.decompressed.size());
    for (std::uint64_t at = 0; at < all.size();) {
      const auto header = all.at<PerfHeader>(at);
      const auto record = header ? all.sub(at, header->size) : Expected<ByteView>(Failure(header.error()));
      if (!record || header->size < sizeof(PerfHeader))
        return fail(ErrorCode::kMalformed, "a compressed record is cut off (its place is counted uncompressed)", at);
      if (header->type < kPerfFirstOfTool)
        if (const auto added = add_record(*record); !added) return added;
      at += header->size;
    }
    return {};
  }

  Expected<void> update_event(ByteView record) {
    constexpr std::uint64_t kName = 2;
    const auto kind = record.at<std::uint64_t>(8), id = record.at<std::uint64_t>(16);
    if (!kind || !id) return fail(ErrorCode::kTruncated, "an event's name is cut off", record.origin());
    if (*kind != kName) return {};
    for (PerfAttr& attr : file_.attrs)
      if (std::ranges::find(attr.ids, *id) != attr.ids.end()) attr.name = text_of(*record.sub(24, record.size() - 24));
    return {};
  }

  // { header, s32 pid, u8 build_id[20], u8 size, u8 reserved[3], char filename[] }
  Expected<void> add_build_id(ByteView record) {
    constexpr std::uint64_t kId = 12, kSize = 32, kName = 36;
    if (record.size() < kName) return fail(ErrorCode::kTruncated, "a build id is cut off", record.origin());
    const bool has_size = (record.at<PerfHeader>(0)->misc & kMiscBuildIdSize) != 0;
    const std::size_t size = has_size ? std::min<std::size_t>(record.u8()[kSize], 20) : 20;
    std::string id;
    for (std::size_t i = 0; i < size; ++i) id += fmt::format("{:02x}", record.u8()[kId + i]);
    file_.build_ids.try_emplace(std::string(text_of(*record.sub(kName, record.size() - kName))), std::move(id));
    return {};
  }

  // Behind the data is a list of sections, one for each bit.
  Expected<void> read_features(const FileHeader& header) {
    std::uint64_t at = header.data.offset + header.data.size;
    for (std::uint32_t feature = 0; feature < 256; ++feature) {
      if ((header.features[feature / 64] >> feature % 64 & 1) == 0) continue;
      const auto section = bytes_.at<FileSection>(at);
      if (!section) return Failure(section.error());
      at += sizeof(FileSection);
      const auto content = bytes_.sub(section->offset, section->size);
      if (!content) return fail(ErrorCode::kTruncated, "the file ends before its header's sections do", at, feature);
      if (const auto done = read_feature(feature, *content); !done) return done;
    }
    return {};
  }
  Expected<void> read_feature(std::uint32_t feature, ByteView content) {
    std::uint64_t at = 0;
    switch (feature) {
      case kFeatureHostname: return set_text(file_.host, content);
      case kFeatureRelease: return set_text(file_.release, content);
      case kFeatureArch: return set_text(file_.machine, content);
      case kFeatureCommand: return read_command(content);
      case kFeatureEventDesc: return read_event_names(content);
      case kFeatureBuildId:
        while (at < content.size()) {
          const auto entry = content.at<PerfHeader>(at);
          const auto record = entry ? content.sub(at, entry->size) : Expected<ByteView>(Failure(entry.error()));
          if (!record || record->empty())
            return fail(ErrorCode::kMalformed, "a build id is cut off", content.origin() + at);
          if (const auto done = add_build_id(*record); !done) return done;
          at += record->size();
        }
        return {};
      default: return {};
    }
  }
  static Expected<void> set_text(std::string& to, ByteView content) {
    std::uint64_t at = 0;
    auto text = counted_text(content, at);
    if (!text) return Failure(text.error());
    to = std::move(*text);
    return {};
  }
  Expected<void> read_command(ByteView content) {
    const auto count = content.at<std::uint32_t>(0);
    if (!count) return Failure(count.error());
    std::uint64_t at = 4;
    for (std::uint32_t i = 0; i < *count && at < content.size(); ++i) {
      const auto word = counted_text(content, at);
      if (!word) return Failure(word.error());
      if (!file_.command.empty()) file_.command += ' ';
      file_.command += *word;
    }
    return {};
  }
  // u32 count, u32 size of an attribute; for each the attribute, u32 number of ids, the name, the ids.
  Expected<void> read_event_names(ByteView content) {
    const auto count = content.at<std::uint32_t>(0), size = content.at<std::uint32_t>(4);
    if (!count || !size) return fail(ErrorCode::kTruncated, "the events' names are cut off", content.origin());
    std::uint64_t at = 8;
    for (std::uint32_t i = 0; i < *count && i < kMostAttrs; ++i) {
      at += *size;
      const auto ids = content.at<std::uint32_t>(at);
      if (!ids) return Failure(ids.error());
      at += 4;
      const auto name = counted_text(content, at);
      if (!name) return Failure(name.error());
      name_event(i, *name, content.at<std::uint64_t>(at), *ids);
      at += std::uint64_t{*ids} * 8;
    }
    return {};
  }
  void name_event(std::uint32_t index, const std::string& name, const Expected<std::uint64_t>& first_id,
                  std::uint32_t ids) {
    auto found = std::ranges::find_if(file_.attrs, [&](const PerfAttr& attr) {
      return ids != 0 && first_id && std::ranges::find(attr.ids, *first_id) != attr.ids.end();
    });
    if (found == file_.attrs.end() && index < file_.attrs.size()) found = file_.attrs.begin() + index;
    if (found != file_.attrs.end()) found->name = name;
  }

  // perf_event_open(2), sample_id: where in a record its time is.
  [[nodiscard]] std::uint64_t time_of(ByteView record) const {
    const auto header = *record.at<PerfHeader>(0);
    const std::uint64_t types = file_.attrs[0].sample_type;
    if ((types & kSampleTime) == 0) return 0;
    if (header.type == kPerfSample) {
      const std::uint64_t before = types & (kSampleIdentifier | kSampleIp | kSampleTid);
      return record.at<std::uint64_t>(8 + 8 * static_cast<unsigned>(std::popcount(before))).value_or(0);
    }
    if ((file_.attrs[0].flags & PerfAttr::kSampleIdAll) == 0) return 0;
    const std::uint64_t from_time =
        types & (kSampleTime | kSampleId | kSampleStreamId | kSampleCpu | kSampleIdentifier);
    const std::uint64_t size = std::uint64_t{8} * static_cast<unsigned>(std::popcount(from_time));
    return record.size() < 8 + size ? 0 : record.at<std::uint64_t>(record.size() - size).value_or(0);
  }

  struct FreeStream {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };
  ByteView bytes_;
  Limits limits_;
  PerfFile file_;
  std::unique_ptr<ZSTD_DStream, FreeStream> stream_;
};

}  // namespace

Expected<PerfFile> read_perf_file(ByteView bytes, const Limits& limits) { return PerfFileReader(bytes, limits).read(); }

std::uint32_t attr_of(const PerfFile& file, std::uint64_t id) {
  const auto known = file.attr_of_id.find(id);
  return known == file.attr_of_id.end() ? 0 : known->second;
}

}  // namespace windlass::importer
