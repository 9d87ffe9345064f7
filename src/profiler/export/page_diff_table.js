// The worker's part of a page of differences. The samples of the side before are those of value 0 of the table, those of
// the side after are of value 1. Numbers of functions, and what is noise, come from names.diff.
let bothSides = null, differenceOf = null;  // [before, after], as choose() has them; of each frame: its entry of names.diff
function readSides() {
  bothSides = [0, 1].map((value) => choose({ value, process: -1, thread: -1, labels: [], from: -1, to: -1 }));
  differenceOf = new Map(names.diff.functions.map((entry) => [entry[0], entry]));
}
// How wide a node is by its own samples, from its shares (or rates, or sums) of both sides.
const WIDTHS = { larger: Math.max, before: (a) => a, after: (a, b) => b, difference: (a, b) => Math.abs(b - a) };
let lastWidths = { size: "", chosen: null };
function withWidths(size) {
  if (lastWidths.size === size) return lastWidths.chosen;
  const [a, b] = bothSides, [before, after] = names.diff.sides, width = WIDTHS[size], self = new Float64Array(table.nodes);
  for (let i = 1; i < table.nodes; i++) self[i] = width(a.self[i] / before.divisor, b.self[i] / after.divisor);
  const chosen = { self, total: summed(self), frameTotal: a.frameTotal.map((n, i) => n + b.frameTotal[i]), sides: bothSides };
  lastWidths = { size, chosen };
  return chosen;
}
// What both sides have of a box, and whether its function differs.
function addSides(box, [a, b]) {
  const sum = (side) => box.leaves ? box.leaves.reduce((n, leaf) => n + side.self[leaf], 0) : side.total[box.node];
  if (box.node === undefined && !box.leaves) return;
  box.a = sum(a);
  box.b = sum(b);
  const known = differenceOf.get(box.frame);
  box.differs = known !== undefined && (known[1][4] || known[2][4]);
}
// As names.diff has them, or by the size of the difference of self (1) or total (2).
function differenceRows({ order, limit }, found) {
  const all = names.diff.functions.filter(([frame]) => !found || found.matches[frame]);
  if (order > 0) all.sort((one, other) => Math.abs(other[order][2]) - Math.abs(one[order][2]));
  return { rows: all.slice(0, limit), more: Math.max(0, all.length - limit) };
}
// [[frame, before, after]...]: what calls a function, and what it calls.
function neighboursOfDifference(wanted) {
  const ofSides = bothSides.map((side) => neighbours(side, wanted));
  const joined = (key) => {
    const all = new Map();
    ofSides.forEach((side, i) => side[key].forEach(([frame, n]) => {
      if (!all.has(frame)) all.set(frame, [frame, 0, 0]);
      all.get(frame)[i + 1] = n;
    }));
    return [...all.values()].sort((one, other) => Math.max(other[1], other[2]) - Math.max(one[1], one[2]));
  };
  return { entry: differenceOf.get(wanted), callers: joined("callers"), callees: joined("callees") };
}
function answerOfDifference(question) {
  if (!bothSides) readSides();
  const chosen = withWidths(question.size), found = question.query ? search(chosen, question.query) : null;
  const result = { summary: { samples: bothSides[0].samples + bothSides[1].samples, modules: [] }, found: null };
  if (found) result.found = { functions: found.functions, sides: bothSides.map((side) => search(side, question.query).samples) };
  if (question.view === "functions") {
    Object.assign(result, differenceRows(question, found));
    if (question.chosen >= 0) result.neighbours = neighboursOfDifference(question.chosen);
  } else {
    result.drawn = draw(chosen, question, found);
  }
  return result;
}
