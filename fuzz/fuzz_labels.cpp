// Input: a file that a label is made of. All its readers get the same bytes.
#include <algorithm>

#include "check.h"
#include "profiler/processes/cgroup_names.h"
#include "profiler/processes/cgroup_tree.h"
#include "profiler/processes/container_records.h"
#include "profiler/processes/json_strings.h"
#include "profiler/processes/kubelet.h"
#include "profiler/processes/user_names.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace windlass::profiler;
  const std::string text(reinterpret_cast<const char*>(data), size);

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
