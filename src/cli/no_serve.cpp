// In place of serve_run.cpp, where SQLite is not linked.
#include "cli/commands.h"
#include "cli/say.h"
#include "cli/serve.h"

namespace windlass::cli {

int serve(const ServeArguments&) {
  say("windlass: this build has no store to serve. Way out: a windlass that is linked with shared libraries; windlass "
      "view shows one file\n");
  return kRefused;
}

}  // namespace windlass::cli
