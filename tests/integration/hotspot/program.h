// Java of our own on the Java virtual machines of this machine.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

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

// The language level of what is compiled: JAVA_RELEASE=8 for virtual machines before 17.
inline std::string java_release() {
  const char* given = getenv("JAVA_RELEASE");
  return given != nullptr ? given : "17";
}

// Makes Chains.class. Empty: it is there; else why not.
inline std::string make_chains() {
  if (run("command -v java javac").status != 0) return "no java or javac";
  const auto made = run("javac --release " + java_release() + " -d " + kHotSpotFolder +
                        " " WINDLASS_HOTSPOT_SOURCES "/Chains.java 2>&1");
  return made.status == 0 ? "" : "Chains.java cannot be compiled: " + made.output;
}

// Makes Adapters.class, with methods of so many signatures. Empty: it is there; else why not.
inline std::string make_adapters(int signatures, int seed) {
  if (run("command -v java javac python3").status != 0) return "no java, javac or python3";
  const auto made = run(fmt::format("cd {} && python3 " WINDLASS_HOTSPOT_SOURCES
                                    "/make_adapters.py {} {} > Adapters.java && javac --release {} Adapters.java 2>&1",
                                    kHotSpotFolder, signatures, seed, java_release()));
  return made.status == 0 ? "" : "Adapters.java cannot be compiled: " + made.output;
}
// Half of its methods stay interpreted.
inline const std::vector<std::string> kAdapterOptions = {"-XX:CompileCommand=quiet",
                                                         "-XX:CompileCommand=exclude,Adapters*::slow*"};

class JavaProgram : public RuntimeProgram {
 public:
  JavaProgram(const std::string& launcher, const std::vector<std::string>& options,
              const std::vector<std::string>& arguments, const std::string& program = "Chains")
      : RuntimeProgram(words(launcher, options, arguments, program), kHotSpotFolder) {}

 private:
  static std::vector<std::string> words(const std::string& launcher, const std::vector<std::string>& options,
                                        const std::vector<std::string>& arguments, const std::string& program) {
    std::vector<std::string> all = {launcher};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), {"-cp", kHotSpotFolder, program});
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }
};

}  // namespace windlass::test
