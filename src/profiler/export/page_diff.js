// A page of differences: what is shown around the flame graph of both sides, and how its boxes are coloured and told.
const SIZES = { LARGER: "larger", BEFORE: "before", AFTER: "after", DIFFERENCE: "difference" };
const LESS_HUE = 214, MORE_HUE = 6;
// A normalised number: a share, an amount a second, or an amount.
const normalised = (x) => names.diff.normalise === "samples" ? (100 * x).toFixed(2) + "%" : amount(Math.round(x)) + (names.diff.normalise === "time" ? "/s" : "");
const ofSide = (n, side) => normalised(n / names.diff.sides[side].divisor);
const change = (difference) => (difference < 0 ? "−" : "+") + normalised(Math.abs(difference));
const changeOf = (a, b) => b / names.diff.sides[1].divisor - a / names.diff.sides[0].divisor;
const sideNames = ["before", "after"];

// ---- colours -------------------------------------------------------------------------------------------------------
// From -1 (gone) to 1 (new): the change in relation to the larger side.
function changeTone(change) {
  const strength = Math.abs(change);
  const lightness = isDark() ? 32 + 6 * strength : 88 - 22 * strength;
  return `hsl(${change < 0 ? LESS_HUE : MORE_HUE} ${25 + 60 * strength}% ${lightness}%)`;
}
const noiseTone = () => tone(GREY, 0, false);
function differenceTone(box, quiet) {
  if (!box.differs) return tone(GREY, quiet ? 4 : 0, false);
  const larger = Math.max(box.a / names.diff.sides[0].divisor, box.b / names.diff.sides[1].divisor);
  return changeTone((quiet ? 0.4 : 1) * changeOf(box.a, box.b) / larger);
}

// ---- around the graph ----------------------------------------------------------------------------------------------
function showDifferenceHeader() {
  const { sides, differing, functions, tests, noise, false_discoveries } = names.diff;
  $("facts").replaceChildren();
  $("notes").replaceChildren();
  document.querySelector("h1").textContent = "Windlass: what differs";
  fact("functions differ", count(differing), differing);
  fact("are noise, or have too few samples", count(functions.length - differing), functions.length - differing);
  const notes = [];
  sides.forEach((side, i) => {
    fact(`${value.value} ${sideNames[i]}`, plain(side.sum), side.sum);
    if (side.seconds) fact(`duration ${sideNames[i]}`, side.seconds.toFixed(1) + " s", side.seconds);
    const parts = [`${i ? "After" : "Before"}: ${side.name}`];
    if (side.start_unix_ms) parts.push(new Date(side.start_unix_ms).toISOString().replace("T", " ").slice(0, 19) + " UTC");
    if (side.lost) parts.push(`${count(side.lost)} lost`);
    notes.push(parts.concat(side.comments).join("; "));
  });
  const unit = { samples: `shares of all ${value.value}`, time: `${value.value} a second of recording`, none: `sums of ${value.value}` }[names.diff.normalise];
  notes.push(`Numbers are ${unit}. ${count(tests)} tests; at most ${Math.round(100 * false_discoveries)}% of what differs is noise. Functions vary by ${(100 * noise).toFixed(1)}% between runs.`);
  for (const text of notes) $("notes").append(element("li", text));
}
function showDifferenceLegend() {
  $("legend").replaceChildren();
  for (const [tone, text, title] of [
    [changeTone(-1), "gone", "not there after"], [changeTone(-0.4), "less", "the darker, the more of it has gone"],
    [noiseTone(), "noise, or too few samples", "the function differs by no more than recordings do"],
    [changeTone(0.4), "more", "the darker, the more of it has come"], [changeTone(1), "new", "not there before"]])
    legendEntry(tone, text, undefined, "", title);
}
function showDifferenceFound() {
  const { found } = answer;
  if (showRefused()) return;
  $("match").className = found && !found.functions ? "none" : "";
  $("match").textContent = !found ? "" : !found.functions ? "no match" :
    `${ofSide(found.sides[0], 0)} before, ${ofSide(found.sides[1], 1)} after, ${count(found.functions)} function${found.functions === 1 ? "" : "s"}`;
}
function showDifferenceAround() {
  value = { value: names.diff.value, unit: names.diff.unit };
  showDifferenceHeader();
  for (const id of ["event", "process", "thread", "colour"]) $(id).hidden = true;
  $("size").hidden = state.view === VIEW.FUNCTIONS;
  $("size").value = state.size;
  $("theme").textContent = isDark() ? "Light" : "Dark";
  showDifferenceLegend();
  showDifferenceFound();
}
const noteOfDifference = () => (state.view === VIEW.CALLERS ? "Functions by their own samples, callers below them. " : "") +
  { larger: "Boxes are as wide as the larger side.", before: "Boxes are as wide as before.", after: "Boxes are as wide as after.",
    difference: "Boxes are as wide as what changed in them, more and less together." }[state.size] +
  " Those narrower than a pixel are not drawn until you zoom in.";

// ---- the tip -------------------------------------------------------------------------------------------------------
function differenceTip(box) {
  const lines = [element("div", `${ofSide(box.a, 0)} before, ${ofSide(box.b, 1)} after: ${change(changeOf(box.a, box.b))}`, "counts"),
                 element("div", `${amount(box.a)} before, ${amount(box.b)} after`, "counts where")];
  if (isCode(box.frame)) lines.push(element("div", box.differs ? "The function differs by more than noise." : "The function's difference is noise, or it has too few samples.", "where"));
  return lines;
}

// ---- the table -----------------------------------------------------------------------------------------------------
function numberCells([a, b, difference, , differs]) {
  return [[ofSide(a, 0), a], [ofSide(b, 1), b], [(differs ? "" : "~") + change(difference), difference, !differs ? "noise" : difference < 0 ? "less" : "more"]];
}
const inSides = ([a, b]) => !a ? "new" : !b ? "gone" : "";
function showDifferenceTable() {
  const entries = answer.rows.map(([id, self, total]) =>
    ({ id, cells: [[cellName(id)], [inSides(total)], ...numberCells(self), ...numberCells(total), [moduleText(id)]] }));
  const heads = [["function", "function"], [sorter("rank", 0), "in"], ["self before", "number"], ["self after", "number"], [sorter("change", 1), "number"],
                 ["total before", "number"], ["total after", "number"], [sorter("change", 2), "number"], ["module", "module"]];
  return tableOf("", heads, entries);
}
function showDifferenceChosen(box, id) {
  const { entry, callers, callees } = answer.neighbours;
  for (const [name, numbers] of [["self", entry && entry[1]], ["total", entry && entry[2]]]) {
    if (!numbers) continue;
    const [a, b, difference, p, differs] = numbers;
    box.append(element("div", `${name}: ${ofSide(a, 0)} before, ${ofSide(b, 1)} after, ${change(difference)}: ${differs ? "differs" : "noise, or too few samples"} (p ${p.toFixed(4)})`));
  }
  const heads = [["before", "number"], ["after", "number"], ["change", "number"], ["function"]];
  const cells = ([other, a, b]) => ({ id: other, cells: [[ofSide(a, 0), a], [ofSide(b, 1), b], [change(changeOf(a, b))], [other < 0 ? "(none)" : cellName(other)]] });
  box.append(tableOf("Callers", heads, callers.map(cells)), tableOf("Callees", heads, callees.map(cells)));
}
