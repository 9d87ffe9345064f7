#include "cli/otlp_output.h"

#include "profiler/transport/otlp_request.h"

namespace windlass::cli {

Expected<void> write_otlp(const profile::Profile& profile, TextWriter& out) {
  out.text(transport::otlp_request(profile, {}));
  return out.finish();
}

}  // namespace windlass::cli
