// Input: a file that a label is made of. All its readers get the same bytes. So does the reader of threads' labels, as
// the memory of a process, and again as what the kernel side sends.
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "check.h"
#include "profiler/processes/cgroup_names.h"
#include "profiler/processes/cgroup_tree.h"
#include "profiler/processes/container_records.h"
#include "profiler/processes/json_strings.h"
#include "profiler/processes/kubelet.h"
#include "profiler/processes/thread_context.h"
#include "profiler/processes/user_names.h"
#include "profiler/samples/thread_labels.h"
#include "windlass_user_env.h"

#include "windlass_labels.h"

namespace {

// The memory is the bytes over and over, but for addresses in the upper half.
struct Repeated {
  const std::uint8_t* data;
  std::size_t size;
};
int read_repeated(void* context, void* to, __u32 size, __u64 address) {
  const auto& bytes = *static_cast<const Repeated*>(context);
  if (address >> 63 != 0 || bytes.size == 0) return 1;
  for (__u32 i = 0; i < size; ++i) static_cast<std::uint8_t*>(to)[i] = bytes.data[(address + i) % bytes.size];
  return 0;
}

void read_thread_labels(const std::uint8_t* data, std::size_t size) {
  using namespace windlass::profiler;
  static const auto scratch = std::make_unique<wl_scratch>();
  Repeated memory{data, size};
  scratch->unwind.env.read = read_repeated;
  scratch->unwind.env.context = &memory;
  wl_labels& labels = scratch->labels;
  for (__u16 kind = WL_LABELS_OFFSET; kind <= WL_LABELS_GO_SLICE; ++kind) {
    scratch->unwind.thread_pointer = 4096;
    labels.source = {.kind = kind, .with_ids = 1, .dtv_entry = 16, .dtv = 8, .variable = {}};
    if (kind >= WL_LABELS_GO_MAP) labels.source.go = {-8, 8, 16, 24, 0};
    if (wl_read_labels(scratch.get()) != 0) continue;
    FUZZ_CHECK(labels.size <= sizeof labels.text);
    const std::span text(reinterpret_cast<const std::byte*>(&labels.text), labels.size);
    const auto read = kind >= WL_LABELS_GO_MAP ? decode_goroutine(text) : decode_context(text, {"a", "b"}).labels;
    for (const Label& label : read) FUZZ_CHECK(!label.key.empty() && !label.value.empty() && label.value.size() <= 255);
  }
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  (void)decode_context(bytes, {"a", "b"});
  (void)decode_goroutine(bytes);
  if (const auto keys = parse_label_keys(windlass::ByteView(bytes.data(), bytes.size())))
    FUZZ_CHECK(keys->size() <= 256);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass::profiler;
  const std::string text(reinterpret_cast<const char*>(data), size);
  read_thread_labels(data, size);

  const CgroupNames names = parse_cgroup(text);
  for (const std::string& name : {names.path, names.container_id, names.container_name, names.unit, names.user_unit})
    FUZZ_CHECK(text.find(name) != std::string::npos);
  for (const std::string& name : {names.container_id, names.container_name, names.unit, names.user_unit})
    FUZZ_CHECK(name.find('/') == std::string::npos);
  FUZZ_CHECK(names.container_id.empty() || names.container_name.empty());
  FUZZ_CHECK(names.user_unit.empty() || names.unit.starts_with("user@"));
  FUZZ_CHECK(names.pod_uid.size() == 0 || names.pod_uid.size() == 32 || names.pod_uid.size() == 36);

  // What is made of strings cannot be more than they are.
  std::size_t total = 0;
  bool deep = false;
  const bool is_json = read_json_strings(text, {.string = [&](const JsonPath& path, const std::string& value) {
                                           total += value.size();
                                           deep = deep || path.size() > 64;
                                         }});
  FUZZ_CHECK(total <= size && !deep);
  for (const auto& record : {parse_docker_config(text), parse_bundle(text)})
    FUZZ_CHECK(!record || (is_json && record->is_known()));
  for (const auto& [id, name] : parse_storage(text)) FUZZ_CHECK(is_json && !id.empty() && !name.empty());
  for (const auto& [id, record] : parse_pods(text)) FUZZ_CHECK(is_json && !id.empty());

  for (const auto& [number, user] : parse_passwd(text))
    FUZZ_CHECK(!user.name.empty() && user.name.find_first_of(":\n") == std::string::npos);
  FUZZ_CHECK(parse_graph_root(text).find('\n') == std::string::npos);
  FUZZ_CHECK(find_cgroup_mount(text).size() <= size);
  if (const auto address = KubeletAddress::parse(text))
    FUZZ_CHECK(address->port != 0 && address->path.starts_with('/') && address->path.find('\n') == std::string::npos);
  return 0;
}
