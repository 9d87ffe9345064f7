// Go of our own, made by the Go that there is.
#pragma once

#include <string>

#include "support/run_command.h"

namespace windlass::test {

inline const std::string kGoFolder = WINDLASS_GO_DIRECTORY;

// Makes the program NAME there from NAME.go; with C in it, if there are flags for its linker. Empty: it is there; else
// why not.
inline std::string make_go_program(const std::string& name, const std::string& options = "",
                                   const std::string& linker_flags = "") {
  if (run("command -v go").status != 0) return "no go";
  const std::string with_c = linker_flags.empty() ? "0" : "1 CGO_LDFLAGS='" + linker_flags + "'";
  const auto made =
      run("cd " WINDLASS_GO_SOURCES " && GO111MODULE=off GOFLAGS= GOTOOLCHAIN=local GOCACHE=" + kGoFolder +
          "/cache CGO_ENABLED=" + with_c + " go build " + options + " -o " + kGoFolder + "/" + name + " " + name +
          ".go 2>&1");
  return made.status == 0 ? "" : name + ".go cannot be compiled: " + made.output;
}

}  // namespace windlass::test
