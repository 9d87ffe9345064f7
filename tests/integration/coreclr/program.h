// C# of our own on a real CoreCLR: that of npm's @azure/mcp-linux-x64, fetched by name, version and hash.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/child_program.h"
#include "support/npm_package.h"
#include "support/run_command.h"

namespace windlass::test {

inline const std::string kCoreClrFolder = WINDLASS_CORECLR_DIRECTORY;

// Empty: programs can be made.
inline std::string why_no_programs() {
  if (run("command -v npm node").status != 0) return "no node or npm";
  return run("command -v mcs").status != 0 ? "no mcs" : "";
}

// Makes the program NAME there from NAME.cs in a folder. Empty: it is there; else why not.
inline std::string make_coreclr_program(const std::string& name,
                                        const std::string& sources = WINDLASS_CORECLR_SOURCES) {
  if (std::string why = why_no_programs(); !why.empty()) return why;
  const std::string package = kCoreClrFolder + "/azure-mcp", made_of = kCoreClrFolder + "/" + name + ".exe";
  if (!fetch_package(package, "@azure/mcp-linux-x64", "2.0.5",
                     "sha512-0FX4fiv1yHAtGkvcBf0tp8agS50JyWAd0r5ebGQB3cGB+ANZYd7jFt+"
                     "aQ8P60ZdckpG2xcAb1TlfOVDEtsGDqg=="))
    return "npm cannot fetch a .NET runtime";
  const auto made = run("mcs -unsafe -optimize+ -out:" + made_of + " " + sources + "/" + name +
                        ".cs 2>&1 && python3 " WINDLASS_CORECLR_SOURCES "/rebundle.py " + package + "/dist/azmcp " +
                        made_of + " " + kCoreClrFolder + "/" + name + " 2>&1");
  return made.status == 0 ? "" : "the program cannot be made: " + made.output;
}

// The program `methods` on an ordinary installation of .NET 9: the framework is in files of its own, compiled ahead of
// time. Empty: it is FOLDER/dist/azmcp; else why not.
inline std::string make_program_on_installed_net(const std::string& folder) {
  if (std::string why = why_no_programs(); !why.empty()) return why;
  if (!fetch_package(folder, "@azure/mcp-linux-x64", "0.5.0",
                     "sha512-sAMnUlnX1BSQhBbND7vu8wsiw8ikMcM6SbxP5mgHK6lWVYgv7eUjiSiLxDPmcubSi1XH7p60K4ez0xL5obiiAA=="))
    return "npm cannot fetch a .NET runtime";
  const auto made =
      run("mcs -unsafe -optimize+ -out:" + folder + "/azmcp.exe " WINDLASS_CORECLR_SOURCES "/methods.cs 2>&1 && mv " +
          folder + "/azmcp.exe " + folder + "/dist/azmcp.dll && chmod +x " + folder + "/dist/azmcp");
  return made.status == 0 ? "" : "the program cannot be made: " + made.output;
}

// Programs on the .NET of the machine: `dotnet`, or what WINDLASS_DOTNET names.
struct MachinesNet {
  std::string dotnet;
  std::string version;  // "8.0.34", the latest of the wanted one
  [[nodiscard]] std::vector<std::string> words(const std::string& name) const {
    return {dotnet, kCoreClrFolder + "/" + name + ".dll"};
  }
};

// Makes the program NAME for it from NAME.cs. Empty: it is there; else why not.
inline std::string make_program_on_machines_net(const std::string& name, unsigned wanted, MachinesNet& net) {
  const char* given = std::getenv("WINDLASS_DOTNET");
  std::string found = given != nullptr ? given : run("command -v dotnet").output;
  net.dotnet = found.substr(0, found.find('\n'));
  if (net.dotnet.empty()) return "no dotnet";
  const std::string framework = "Microsoft.NETCore.App ", release = std::to_string(wanted) + ".0.";
  std::istringstream lines(run(net.dotnet + " --list-runtimes 2>&1").output);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(framework + release))
      net.version = line.substr(framework.size(), line.find(" [") - framework.size());
  if (net.version.empty()) return "dotnet without .NET " + std::to_string(wanted);
  const std::string made_of = kCoreClrFolder + "/" + name;
  std::ofstream(made_of + ".runtimeconfig.json")
      << R"({"runtimeOptions":{"framework":{"name":"Microsoft.NETCore.App","version":")" << release << R"(0"}}})";
  const auto made = run("mcs -unsafe -optimize+ -out:" + made_of + "_.exe " WINDLASS_CORECLR_SOURCES "/" + name +
                        ".cs 2>&1 && mv " + made_of + "_.exe " + made_of + ".dll");
  return made.status == 0 ? "" : "the program cannot be made: " + made.output;
}

// "A.B(Int32 x, T[] y)" -> "A.B(Int32, T[])". Commas within an array's brackets are no separators, and no space stands
// behind them.
inline std::string without_parameter_names(const std::string& line) {
  const std::size_t open = line.find('(');
  std::string out = line.substr(0, open + 1);
  std::istringstream parameters(line.substr(open + 1, line.rfind(')') - open - 1));
  for (std::string type, name; parameters >> type >> name;) out += (out.back() == '(' ? "" : ", ") + type;
  return out + ")";
}

// Runs the chains; what it prints when it ends is the runtime's own stack trace.
class CoreClrChains : public ChildProgram {
 public:
  // `output` is the name of a file for what it prints.
  CoreClrChains(const std::string& what, const std::string& output)
      : ChildProgram({kCoreClrFolder + "/chains", what}, kCoreClrFolder + "/" + output + ".txt", STDERR_FILENO,
                     {{"DOTNET_DbgEnableMiniDump", "0"}}) {}
  // All of the framework's code is compiled when it runs.
  CoreClrChains(const MachinesNet& net, const std::string& what)
      : ChildProgram(with_argument(net.words("chains"), what), kCoreClrFolder + "/" + what + "_machine.txt",
                     STDERR_FILENO, {{"DOTNET_DbgEnableMiniDump", "0"}, {"DOTNET_ReadyToRun", "0"}}) {}

  [[nodiscard]] std::vector<std::string> printed_stack() {
    wait();
    std::vector<std::string> stack;
    std::ifstream lines(output());
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("   at ")) stack.push_back(without_parameter_names(line.substr(6)));
    return stack;
  }

 private:
  static std::vector<std::string> with_argument(std::vector<std::string> words, const std::string& argument) {
    words.push_back(argument);
    return words;
  }
};

}  // namespace windlass::test
