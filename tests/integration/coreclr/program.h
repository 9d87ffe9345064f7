// C# of our own on a real CoreCLR: that of npm's @azure/mcp-linux-x64, fetched by name, version and hash.
#pragma once

#include <string>

#include "support/run_command.h"

namespace windlass::test {

inline const std::string kCoreClrFolder = WINDLASS_CORECLR_DIRECTORY;

// Makes the program NAME there from NAME.cs. Empty: it is there; else why not.
inline std::string make_coreclr_program(const std::string& name) {
  if (run("command -v npm node").status != 0) return "no node or npm";
  if (run("command -v mcs").status != 0) return "no mcs";
  const std::string package = kCoreClrFolder + "/azure-mcp", made_of = kCoreClrFolder + "/" + name + ".exe";
  const int fetched = run("test -f " + package +
                          "/.integrity || sh " WINDLASS_FETCH
                          " @azure/mcp-linux-x64 2.0.5 "
                          "sha512-0FX4fiv1yHAtGkvcBf0tp8agS50JyWAd0r5ebGQB3cGB+ANZYd7jFt+"
                          "aQ8P60ZdckpG2xcAb1TlfOVDEtsGDqg== " +
                          package)
                          .status;
  if (fetched == 1) return "npm cannot fetch a .NET runtime";
  const auto made = run("mcs -unsafe -optimize+ -out:" + made_of + " " WINDLASS_CORECLR_SOURCES "/" + name +
                        ".cs 2>&1 && python3 " WINDLASS_CORECLR_SOURCES "/rebundle.py " + package + "/dist/azmcp " +
                        made_of + " " + kCoreClrFolder + "/" + name + " 2>&1");
  return made.status == 0 ? "" : "the program cannot be made: " + made.output;
}

}  // namespace windlass::test
