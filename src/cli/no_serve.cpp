// In place of serve_run.cpp and store_admin.cpp, where no store is linked.
#include "cli/commands.h"
#include "cli/say.h"
#include "cli/serve.h"
#include "cli/store_admin.h"

namespace windlass::cli {

int serve(const ServeArguments&) {
  say("windlass: this build has no store to serve. Way out: the windlass of a package, or of cmake --preset install; "
      "windlass view shows one file\n");
  return kRefused;
}

std::string problem_of_store_url(const std::string&) { return {}; }
std::string problem_of_cluster(const std::string&) { return {}; }
int create_store(const StoreAdmin&) {
  say("windlass: this build has no store. Way out: the windlass of a package, or of cmake --preset install\n");
  return kRefused;
}
int prune_store(const StoreAdmin& arguments) { return create_store(arguments); }

}  // namespace windlass::cli
