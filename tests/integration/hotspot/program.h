// Java of our own on the Java virtual machines of this machine.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "support/other_release.h"
#include "support/run_command.h"
#include "support/runtime_program.h"

namespace windlass::test {

inline const std::string kHotSpotFolder = WINDLASS_HOTSPOT_DIRECTORY;

// The launchers that there are: the default one first.
inline std::vector<std::string> java_launchers() {
  std::vector<std::string> found;
  std::istringstream list(
      run("for j in $(command -v java) /usr/lib/jvm/*/bin/java; do test -x $j && readlink -f $j; done | awk '!s[$0]++'")
          .output);
  for (std::string line; std::getline(list, line);) found.push_back(line);
  return found;
}

// JDK 8 and 11, of Ubuntu 22.04. They run Chains.class of kOldFolder. Where they cannot be had, `why` says so.
inline const std::string kOldFolder = kHotSpotFolder + "/old";
inline std::vector<std::string> old_java_launchers(std::string& why) {
  const std::string root = kHotSpotFolder + "/jammy";
  why = fetch_release_packages(
      root, "jammy",
      "openjdk-8-jre-headless=7d15a361fca810dd034f4119fbd110b40ccd9e8c946c3aaa1636546197a2e3b3 "
      "openjdk-11-jre-headless=c3c49816cc173f12f9335e3f2549653a43346ed14e000daafa32cdc5301084dc");
  if (!why.empty()) return {};
  const auto made = run("javac --release 8 -d " + kOldFolder + " " WINDLASS_HOTSPOT_SOURCES "/Chains.java 2>&1");
  if (made.status != 0) why = "Chains.java cannot be compiled for JDK 8: " + made.output;
  if (!why.empty()) return {};
  const auto launcher = [&](const char* version) {
    return make_launcher(root, kOldFolder, fmt::format("/usr/lib/jvm/java-{}-openjdk-amd64/bin/java", version),
                         fmt::format("{}/jdk{}/java", kOldFolder, version));
  };
  return {launcher("8"), launcher("11")};
}

// JDK 21, of Debian 13. Empty: `why` says why not.
inline std::string java_21_launcher(std::string& why) {
  const std::string root = kHotSpotFolder + "/trixie";
  why = fetch_release_packages(root, "trixie", "openjdk-21-jre-headless");
  if (!why.empty()) return "";
  return make_launcher(root, kHotSpotFolder, "/usr/lib/jvm/java-21-openjdk-amd64/bin/java",
                       kHotSpotFolder + "/jdk21/java");
}

// A program with virtual threads, compiled for JDK 21 and later. False: no compiler here knows them.
inline bool make_virtual(const std::string& program) {
  const auto launchers = java_launchers();
  return std::ranges::any_of(launchers, [&](const std::string& launcher) {
    return run(launcher + "c --release 21 -d " + kHotSpotFolder + "/" + program + " " WINDLASS_HOTSPOT_SOURCES "/" +
               program + ".java 2>&1")
               .status == 0;
  });
}

// Those of this machine that have virtual threads.
inline std::vector<std::string> virtual_launchers() {
  std::vector<std::string> found = java_launchers();
  std::erase_if(found, [](const std::string& launcher) {
    const std::string version = run(launcher + " -version 2>&1").output;
    const auto quote = version.find('"');
    return quote == version.npos || std::atoi(version.c_str() + quote + 1) < 21;
  });
  return found;
}

// Makes Chains.class. Empty: it is there; else why not.
inline std::string make_chains() {
  if (run("command -v java javac").status != 0) return "no java or javac";
  const auto made = run("javac --release 17 -d " + kHotSpotFolder + " " WINDLASS_HOTSPOT_SOURCES "/Chains.java 2>&1");
  return made.status == 0 ? "" : "Chains.java cannot be compiled: " + made.output;
}

// Makes Adapters.class, with methods of so many signatures. Empty: it is there; else why not.
inline std::string make_adapters(int signatures, int seed) {
  if (run("command -v java javac python3").status != 0) return "no java, javac or python3";
  const auto made = run(fmt::format("cd {} && python3 " WINDLASS_HOTSPOT_SOURCES
                                    "/make_adapters.py {} {} > Adapters.java && javac --release 17 Adapters.java 2>&1",
                                    kHotSpotFolder, signatures, seed));
  return made.status == 0 ? "" : "Adapters.java cannot be compiled: " + made.output;
}
// Half of its methods stay interpreted.
inline const std::vector<std::string> kAdapterOptions = {"-XX:CompileCommand=quiet",
                                                         "-XX:CompileCommand=exclude,Adapters*::slow*"};

class JavaProgram : public RuntimeProgram {
 public:
  JavaProgram(const std::string& launcher, const std::vector<std::string>& options,
              const std::vector<std::string>& arguments, const std::string& program = "Chains",
              const std::string& folder = kHotSpotFolder)
      : RuntimeProgram(words(launcher, options, arguments, program, folder), kHotSpotFolder) {}

 private:
  static std::vector<std::string> words(const std::string& launcher, const std::vector<std::string>& options,
                                        const std::vector<std::string>& arguments, const std::string& program,
                                        const std::string& folder) {
    std::vector<std::string> all = {launcher};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), {"-cp", folder, program});
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }
};

}  // namespace windlass::test
