// Java of our own on the Java virtual machines of this machine.
#pragma once

#include <sstream>
#include <string>
#include <vector>

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

// Makes Chains.class. Empty: it is there; else why not.
inline std::string make_chains() {
  if (run("command -v java javac").status != 0) return "no java or javac";
  const auto made = run("javac --release 17 -d " + kHotSpotFolder + " " WINDLASS_HOTSPOT_SOURCES "/Chains.java 2>&1");
  return made.status == 0 ? "" : "Chains.java cannot be compiled: " + made.output;
}

class JavaProgram : public RuntimeProgram {
 public:
  JavaProgram(const std::string& launcher, const std::vector<std::string>& options,
              const std::vector<std::string>& arguments)
      : RuntimeProgram(words(launcher, options, arguments), kHotSpotFolder) {}

 private:
  static std::vector<std::string> words(const std::string& launcher, const std::vector<std::string>& options,
                                        const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {launcher};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), {"-cp", kHotSpotFolder, "Chains"});
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }
};

}  // namespace windlass::test
