// What is known of a container besides its id.
#pragma once

#include <string>

namespace windlass::profiler {

struct ContainerRecord {
  std::string name{};     // the runtime's
  std::string runtime{};  // empty: not known
  std::string pod{};      // Kubernetes, as are the next three
  std::string pod_namespace{};
  std::string pod_uid{};
  std::string pod_container{};  // the pod's name of it
  [[nodiscard]] bool is_known() const { return !name.empty() || !pod.empty(); }
};

}  // namespace windlass::profiler
