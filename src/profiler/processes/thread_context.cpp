#include "profiler/processes/thread_context.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include "runtimes/dynamic_symbol.h"
#include "runtimes/memory_reader.h"

namespace windlass::profiler {
namespace {

using runtimes::ThreadVariable;

constexpr std::size_t kMostKeys = 256;

// Where a thread's control block has the vector of modules' storage, and how big its entries are: glibc,
// sysdeps/*/nptl/tls.h and sysdeps/generic/dl-dtv.h; musl, src/internal/pthread_impl.h.
void set_vector(wl_label_source& source, bool musl) {
#if defined(__aarch64__)
  source.dtv = musl ? -8 : 0;
#else
  source.dtv = 8;
#endif
  source.dtv_entry = musl ? 8 : 16;
}

wl_label_kind kind_of(ThreadVariable::Model model) {
  switch (model) {
    case ThreadVariable::Model::kOffset: return WL_LABELS_OFFSET;
    case ThreadVariable::Model::kOffsetAt: return WL_LABELS_OFFSET_AT;
    case ThreadVariable::Model::kIndex: return WL_LABELS_INDEX;
    case ThreadVariable::Model::kDescriptor: break;
  }
  return WL_LABELS_DESCRIPTOR;
}

// ---- the process context --------------------------------------------------------------------------------------------

struct ContextHeader {
  char signature[8];
  std::uint32_t version;
  std::uint32_t size;
  std::uint64_t published;  // CLOCK_BOOTTIME, ns; 0: it is being written
  std::uint64_t payload;
};
constexpr char kSignature[] = "OTEL_CTX";
constexpr std::uint32_t kVersion = 2;

bool may_be_context(const os::ProcMap& map) {
  return map.path.starts_with("[anon_shmem:OTEL_CTX]") || map.path.starts_with("[anon:OTEL_CTX]") ||
         map.path.starts_with("/memfd:OTEL_CTX");
}

// Calls field(number, bytes) for each length-delimited field of a message, and skips others. False: malformed.
template <typename Field>
bool for_each_field(ByteView message, const Field& field) {
  for (ByteCursor at(message); !at.at_end();) {
    const auto tag = at.uleb();
    if (!tag) return false;
    switch (*tag & 7) {
      case 0:
        if (!at.uleb()) return false;
        break;
      case 1:
        if (!at.bytes(8)) return false;
        break;
      case 2: {
        const auto size = at.uleb();
        const auto bytes = size ? at.bytes(*size) : Expected<ByteView>(Failure(size.error()));
        if (!bytes || !field(*tag >> 3, *bytes)) return false;
        break;
      }
      case 5:
        if (!at.bytes(4)) return false;
        break;
      default: return false;
    }
  }
  return true;
}

std::string text_of(ByteView bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// opentelemetry/proto/common/v1/common.proto: KeyValue, AnyValue, ArrayValue.
struct KeyValue {
  std::string key;
  ByteView value;
};
std::optional<KeyValue> key_value(ByteView message) {
  KeyValue found;
  const bool good = for_each_field(message, [&](std::uint64_t number, ByteView bytes) {
    if (number == 1) found.key = text_of(bytes);
    if (number == 2) found.value = bytes;
    return true;
  });
  return good ? std::optional(found) : std::nullopt;
}
std::optional<std::string> string_value(ByteView any) {
  std::string text;
  const bool good = for_each_field(any, [&](std::uint64_t number, ByteView bytes) {
    if (number == 1) text = text_of(bytes);
    return true;
  });
  return good ? std::optional(text) : std::nullopt;
}
bool append_strings(ByteView any, std::vector<std::string>& to) {
  return for_each_field(any, [&](std::uint64_t number, ByteView array) {
    return number != 5 || for_each_field(array, [&](std::uint64_t of, ByteView value) {
             const auto text = of == 1 ? string_value(value) : std::nullopt;
             if (text && to.size() < kMostKeys) to.push_back(*text);
             return of != 1 || text.has_value();
           });
  });
}

// The header, and the payload that it had all the while.
Expected<std::vector<std::byte>> read_payload(const Memory& memory, std::uint64_t at) {
  const auto header = runtimes::read_value<ContextHeader>(memory, at);
  if (!header || std::memcmp(header->signature, kSignature, sizeof header->signature) != 0 ||
      header->version != kVersion)
    return fail(ErrorCode::kNotFound, "no process context of a known version", at);
  if (header->published == 0 || header->size > kMostContext)
    return fail(ErrorCode::kMalformed, "a process context that is being written, or too long", at, header->size);
  std::vector<std::byte> payload(header->size);
  if (!payload.empty() && !memory.read(header->payload, payload.data(), payload.size()))
    return fail(ErrorCode::kUnreadable, "the payload of a process context cannot be read", header->payload);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto now = runtimes::read_value<ContextHeader>(memory, at);
  if (!now || now->published != header->published)
    return fail(ErrorCode::kMalformed, "a process context that is being written", at);
  return payload;
}

}  // namespace

Expected<wl_label_source> find_thread_context(const Memory& memory, std::uint64_t base, bool musl) {
  const auto variable = runtimes::find_thread_variable(memory, base, kThreadContext);
  if (!variable) return Failure(variable.error());
  wl_label_source source{};
  source.kind = kind_of(variable->model);
  source.variable = {variable->place, variable->offset};
  set_vector(source, musl);
  return source;
}

bool has_thread_context(const Memory& image, std::uint64_t base) {
  return runtimes::find_dynamic_object(image, base, kThreadContext).has_value();
}

Expected<std::vector<std::string>> parse_label_keys(ByteView payload) {
  std::string schema;
  std::vector<std::string> keys;
  const bool good = for_each_field(payload, [&](std::uint64_t number, ByteView message) {
    if (number != 2) return true;  // the process's own attributes
    const auto attribute = key_value(message);
    if (!attribute) return false;
    if (attribute->key == "threadlocal.schema_version") {
      const auto text = string_value(attribute->value);
      if (text) schema = *text;
      return text.has_value();
    }
    return attribute->key != "threadlocal.attribute_key_map" || append_strings(attribute->value, keys);
  });
  if (!good) return fail(ErrorCode::kMalformed, "a process context that is no message", 0);
  if (schema != "tlsdesc_v1_dev" && schema != "tls_v1")
    return fail(ErrorCode::kNotFound, "a process context without the names of threads' labels", 0);
  return keys;
}

Expected<std::vector<std::string>> read_label_keys(const Memory& memory, std::span<const os::ProcMap> maps) {
  for (const os::ProcMap& map : maps) {
    if (!may_be_context(map)) continue;
    auto payload = read_payload(memory, map.begin);
    // What is written takes microseconds.
    for (int again = 0; !payload && payload.error().code == ErrorCode::kMalformed && again < 3; ++again)
      payload = read_payload(memory, map.begin);
    if (payload) return parse_label_keys(ByteView(payload->data(), payload->size()));
    if (payload.error().code != ErrorCode::kNotFound) return Failure(payload.error());
  }
  return fail(ErrorCode::kNotFound, "the process shares no context", 0);
}

}  // namespace windlass::profiler
