#include "profiler/annotate/jump_lanes.h"

#include <algorithm>
#include <cstdint>

namespace windlass::annotate {

namespace {

struct Jump {
  std::size_t from, to;  // lines
  [[nodiscard]] std::size_t first() const { return std::min(from, to); }
  [[nodiscard]] std::size_t last() const { return std::max(from, to); }
};

std::vector<Jump> jumps_of(const std::vector<CodeLine>& code) {
  std::vector<Jump> jumps;
  for (std::size_t from = 0; from < code.size(); ++from) {
    const Instruction& instruction = code[from].instruction;
    if (!instruction.target || instruction.is_call) continue;
    const auto at = std::ranges::lower_bound(code, *instruction.target, {},
                                             [](const CodeLine& line) { return line.instruction.address; });
    const auto to = static_cast<std::size_t>(at - code.begin());
    if (at != code.end() && at->instruction.address == *instruction.target && to != from) jumps.push_back({from, to});
  }
  std::ranges::stable_sort(jumps, {}, [](const Jump& jump) { return jump.last() - jump.first(); });
  return jumps;
}

}  // namespace

std::vector<std::string> jump_lanes(const std::vector<CodeLine>& code, std::size_t lanes) {
  // Of each line and lane: what is drawn there. Lane 0 is nearest to the instruction.
  enum class Cell : std::uint8_t { kNone, kDown, kTop, kBottom, kTopArrow, kBottomArrow };
  std::vector<std::vector<Cell>> cells(code.size(), std::vector<Cell>(lanes, Cell::kNone));
  for (const Jump& jump : jumps_of(code)) {
    const auto is_free = [&](std::size_t lane) {
      for (std::size_t line = jump.first(); line <= jump.last(); ++line)
        if (cells[line][lane] != Cell::kNone) return false;
      return true;
    };
    std::size_t lane = 0;
    while (lane < lanes && !is_free(lane)) ++lane;
    if (lane == lanes) continue;
    for (std::size_t line = jump.first(); line <= jump.last(); ++line) cells[line][lane] = Cell::kDown;
    cells[jump.first()][lane] = jump.to < jump.from ? Cell::kTopArrow : Cell::kTop;
    cells[jump.last()][lane] = jump.to > jump.from ? Cell::kBottomArrow : Cell::kBottom;
  }
  std::vector<std::string> texts;
  for (const auto& line : cells) {
    std::string text;
    const char* filler = " ";  // behind a corner, the line goes on to the instruction
    for (std::size_t lane = lanes; lane-- > 0;) {
      const Cell cell = line[lane];
      if (cell == Cell::kNone) text += filler;
      if (cell == Cell::kDown) text += "│";
      if (cell == Cell::kTop || cell == Cell::kTopArrow) text += "╭";
      if (cell == Cell::kBottom || cell == Cell::kBottomArrow) text += "╰";
      if (cell > Cell::kDown) filler = "─";
    }
    const bool arrives = std::ranges::any_of(line, [](Cell cell) { return cell >= Cell::kTopArrow; });
    texts.push_back(text + (arrives ? "→" : filler));
  }
  return texts;
}

}  // namespace windlass::annotate
