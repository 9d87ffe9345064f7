// ARM64 functions in assembly with .seh_ directives, as compilers write them: LLVM's assembler and linker make the
// unwind information from the directives, so it owes nothing to this project.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "support/run_command.h"

namespace windlass::test {

// One instruction of a prologue, its directive, and the instruction of the epilogue that undoes it ("": none does).
struct SehStep {
  std::string store;
  std::string directive;
  std::string load;
};

class SehAssembly {
 public:
  struct Shape {
    unsigned epilogues = 1;
    unsigned body = 4;     // nops before the first epilogue
    unsigned between = 2;  // behind every epilogue but the last
    unsigned tail = 0;     // behind the last one
  };

  void add(const std::vector<SehStep>& steps) { add(steps, Shape()); }
  void add(const std::vector<SehStep>& steps, const Shape& shape) {
    const std::string name = fmt::format("f{}", count_++);
    text_ += fmt::format("\t.p2align 2\n\t.seh_proc {0}\n{0}:\n", name);
    for (const SehStep& step : steps) line(step.store), line(step.directive);
    line(".seh_endprologue");
    nops(shape.body);
    for (unsigned i = 0; i < shape.epilogues; ++i) {
      line(".seh_startepilogue");
      for (std::size_t at = steps.size(); at-- > 0;)
        if (!steps[at].load.empty()) line(steps[at].load), line(steps[at].directive);
      line(".seh_endepilogue");
      line("ret");
      nops(i + 1 < shape.epilogues ? shape.between : shape.tail);
    }
    line(".seh_endproc");
  }
  // A function whose prologue is not made of steps, and that does not return.
  void add_raw(const std::vector<std::string>& prologue, unsigned body) {
    const std::string name = fmt::format("f{}", count_++);
    text_ += fmt::format("\t.p2align 2\n\t.seh_proc {0}\n{0}:\n", name);
    for (const std::string& each : prologue) line(each);
    line(".seh_endprologue");
    nops(body);
    line("brk #0xf000");
    line(".seh_endproc");
  }
  [[nodiscard]] unsigned functions() const { return count_; }

  // Why this machine cannot assemble, or "".
  [[nodiscard]] static std::string missing() {
    if (run("command -v llvm-mc-22").status != 0) return "no llvm-mc-22";
    return run("command -v lld-link-19").status != 0 ? "no lld-link-19" : "";
  }
  // The image's bytes; empty, with `problem` set, where a tool refuses.
  [[nodiscard]] std::vector<std::uint8_t> build(std::string& problem) const {
    const char* const temporary = std::getenv("TMPDIR");
    std::string folder = std::string(temporary != nullptr ? temporary : "/tmp") + "/windlass-seh-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) {
      problem = "no temporary folder";
      return {};
    }
    std::ofstream(folder + "/a.s") << "\t.text\n" << text_;
    const auto made =
        run(fmt::format("cd {} && llvm-mc-22 -triple aarch64-windows -mattr=+sve,+pauth -filetype=obj a.s -o "
                        "a.obj 2>&1 && lld-link-19 /dll /noentry /machine:arm64 /out:a.dll a.obj 2>&1",
                        folder));
    std::ifstream file(folder + "/a.dll", std::ios::binary);
    std::vector<std::uint8_t> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    run("rm -r " + folder);
    if (made.status != 0) {
      problem = made.output.substr(0, 2000);
      bytes.clear();
    }
    return bytes;
  }

 private:
  void line(const std::string& text) { text_ += "\t" + text + "\n"; }
  void nops(unsigned count) {
    if (count > 0) line(fmt::format(".rept {}\n\tnop\n\t.endr", count));
  }

  std::string text_;
  unsigned count_ = 0;
};

// ---- steps ---------------------------------------------------------------------------------------------------------

inline SehStep seh_alloc(unsigned bytes) {
  const std::string amount = bytes < 4096 ? fmt::format("#{}", bytes) : fmt::format("#{}, lsl #12", bytes >> 12);
  return {"sub sp, sp, " + amount, fmt::format(".seh_stackalloc {}", bytes), "add sp, sp, " + amount};
}
// x registers by the codes that have a name of their own. `bytes`: the offset, or, pre-indexed, what sp moves by.
inline SehStep seh_pair(const std::string& first, const std::string& second, unsigned bytes,
                        const std::string& directive, bool pre) {
  const std::string registers = first + ", " + second;
  return {
      pre ? fmt::format("stp {}, [sp, #-{}]!", registers, bytes) : fmt::format("stp {}, [sp, #{}]", registers, bytes),
      fmt::format("{} {}", directive, bytes),
      pre ? fmt::format("ldp {}, [sp], #{}", registers, bytes) : fmt::format("ldp {}, [sp, #{}]", registers, bytes)};
}
inline SehStep seh_single(const std::string& reg, unsigned bytes, const std::string& directive, bool pre) {
  return {pre ? fmt::format("str {}, [sp, #-{}]!", reg, bytes) : fmt::format("str {}, [sp, #{}]", reg, bytes),
          fmt::format("{} {}", directive, bytes),
          pre ? fmt::format("ldr {}, [sp], #{}", reg, bytes) : fmt::format("ldr {}, [sp, #{}]", reg, bytes)};
}
inline SehStep seh_set_fp(bool undone) { return {"mov x29, sp", ".seh_set_fp", undone ? "mov sp, x29" : ""}; }
inline SehStep seh_sign() { return {"pacibsp", ".seh_pac_sign_lr", "autibsp"}; }

// The canonical prologue that a packed entry stands for ("Packed unwind data" in the page), from its fields. `locals`:
// what is left of the frame beside the saves.
inline std::vector<SehStep> seh_canonical(unsigned reg_f, unsigned reg_i, bool homes, unsigned cr, unsigned locals) {
  std::vector<SehStep> steps;
  const unsigned integers = reg_i * 8 + (cr == 1 ? 8 : 0), vectors = reg_f == 0 ? 0 : reg_f * 8 + 8;
  const unsigned saved = (integers + vectors + (homes ? 64 : 0) + 15) / 16 * 16;
  if (cr == 2) steps.push_back(seh_sign());
  unsigned at = 0;
  const auto x = [](unsigned i) { return fmt::format("x{}", 19 + i); };
  const auto d = [](unsigned i) { return fmt::format("d{}", 8 + i); };
  const auto save_pair = [&](const std::string& one, const std::string& two, const char* directive) {
    const bool pre = at == 0;
    steps.push_back(
        seh_pair(one, two, pre ? saved : at, fmt::format("{}{} {},", directive, pre ? "_x" : "", one), pre));
    at += 16;
  };
  const auto save_one = [&](const std::string& one, const char* directive) {
    const bool pre = at == 0;
    steps.push_back(seh_single(one, pre ? saved : at, fmt::format("{}{} {},", directive, pre ? "_x" : "", one), pre));
    at += 8;
  };
  if (reg_i == 1 && cr == 1) steps.push_back(seh_alloc(saved));
  unsigned i = 0;
  for (; i + 1 < reg_i; i += 2) save_pair(x(i), x(i + 1), ".seh_save_regp");
  if (i < reg_i && cr == 1) {
    steps.push_back(seh_pair(x(i), "x30", at, fmt::format(".seh_save_lrpair {},", x(i)), false));
    at += 16;
  } else if (i < reg_i) {
    save_one(x(i), ".seh_save_reg");
  } else if (cr == 1) {
    save_one("x30", ".seh_save_reg");
  }
  const unsigned count = reg_f == 0 ? 0 : reg_f + 1;
  for (i = 0; i + 1 < count; i += 2) save_pair(d(i), d(i + 1), ".seh_save_fregp");
  if (i < count) save_one(d(i), ".seh_save_freg");
  for (unsigned home = 0; homes && home < 4; ++home)
    steps.push_back(
        {fmt::format("stp x{}, x{}, [sp, #{}]", 2 * home, 2 * home + 1, saved - 64 + 16 * home), ".seh_nop", ""});
  if (cr >= 2 && locals <= 512) {
    steps.push_back(seh_pair("x29", "x30", locals, ".seh_save_fplr_x", true));
  } else {
    if (locals > 4080) steps.push_back(seh_alloc(4080));
    if (locals > 0) steps.push_back(seh_alloc(locals > 4080 ? locals - 4080 : locals));
    if (cr >= 2) steps.push_back(seh_pair("x29", "x30", 0, ".seh_save_fplr", false));
  }
  if (cr >= 2) steps.push_back(seh_set_fp(false));
  return steps;
}

}  // namespace windlass::test
