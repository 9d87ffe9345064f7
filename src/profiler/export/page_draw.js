// The flame graph: boxes that the worker has chosen, drawn, and walked by mouse and keyboard.
const ROW = 19;  // pixels
let drawn = null, selected = "";  // the worker's boxes; the key of the box that the keyboard is at
const letter = (() => {
  const context = document.createElement("canvas").getContext("2d");
  context.font = "12px ui-monospace, 'DejaVu Sans Mono', monospace";
  return context.measureText("0123456789").width / 10;
})();
const boxLabel = (box, room) => {
  if (box.frame === NARROWER) return shortened(`(${count(box.functions)} narrower functions)`, room);
  return shortened(nameOf(box.frame), room, box.frame >= 0 ? names.frames[box.frame].plain : undefined);
};

const THIN = 3;  // pixels: a gap on each side would leave nothing of the box
function showBoxes(answer, by, searching) {
  drawn = answer.drawn;
  drawn.everywhere = answer.everywhere;
  drawn.samples = answer.summary.samples;
  const chart = $("chart"), width = chartWidth(), scale = width / drawn.whole, made = document.createDocumentFragment();
  let depth = 0;
  drawn.boxes.forEach((box, i) => {
    const frame = element("div", undefined, "frame"), pixels = box.above ? width : box.n * scale;
    if (box.above) frame.classList.add("above");
    if (box.truncated) frame.classList.add("truncated");
    if (box.differs && box.a === 0) frame.classList.add("new");
    if (box.differs && box.b === 0) frame.classList.add("gone");
    if (box.match) frame.classList.add("match");
    else frame.style.backgroundColor = colourOf(box, by, searching);
    if (pixels < THIN) frame.classList.add("thin");
    frame.style.left = `${box.above ? 0 : box.x * scale}px`;
    frame.style.top = `${box.depth * ROW}px`;
    frame.style.width = `${pixels}px`;
    const room = Math.floor((pixels - 8) / letter);
    if (room >= 3) frame.textContent = boxLabel(box, room);
    frame.dataset.i = i;
    frame.tabIndex = -1;
    depth = Math.max(depth, box.depth);
    box.element = frame;
    made.append(frame);
  });
  chart.replaceChildren(made);
  chart.style.height = `${(depth + 1) * ROW + 46}px`;
  const start = drawn.boxes.find((box) => box.key === selected) || drawn.boxes.find((box) => !box.above);
  if (start) start.element.tabIndex = 0;
}
const boxOf = (target) => target.dataset && target.dataset.i !== undefined && drawn ? drawn.boxes[Number(target.dataset.i)] : null;

// In the flame chart a box is a time, elsewhere a part of all samples.
const weightOf = (box) => drawn.from !== undefined ? `about ${duration(box.n)}, from ${secondsOf(drawn.from + box.x)} s on` : `${amount(box.n)} (${share(box.n, drawn.samples)})`;

// ---- the tip -------------------------------------------------------------------------------------------------------
function showTip(box, x, y) {
  const tip = $("tip"), percent = (n) => share(n, drawn.samples);
  if (box.frame === NARROWER) {
    tip.replaceChildren(element("b", `${count(box.functions)} functions narrower than a pixel`), element("div", (names.diff ? normalised(box.n) : `${amount(box.n)} (${percent(box.n)})`) + "; a click shows the table of functions", "counts"));
  } else {
    const module = moduleOf(box.frame), frame = names.frames[box.frame];
    tip.replaceChildren(element("b", nameOf(box.frame)));
    if (module) tip.append(element("div", frame.modules ? moduleText(box.frame) : module.path, "where"));
    if (frame && frame.file) tip.append(element("div", frame.file + (frame.line ? ":" + frame.line : ""), "where"));
    if (names.diff) tip.append(...differenceTip(box));
    else tip.append(element("div", weightOf(box) + (box.self === undefined ? "" : `, self ${amount(box.self)} (${percent(box.self)})`), "counts"));
    if (isCode(box.frame) && drawn.everywhere) tip.append(element("div", `in all stacks: self ${percent(drawn.everywhere.self[box.frame])}, total ${percent(drawn.everywhere.total[box.frame])}`, "counts where"));
    if (box.certainty !== undefined && names.certainties[box.certainty]) tip.append(element("div", `certainty: mostly ${names.certainties[box.certainty]}`, "where"));
    if (box.truncated) tip.append(element("div", "This stack is truncated: its outer callers are not known.", "warning"));
  }
  tip.style.display = "block";
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - width - 8)) + "px";
  tip.style.top = (y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18) + "px";
}
const hideTip = () => { $("tip").style.display = "none"; };
function watchBoxes(choose) {
  const chart = $("chart");
  chart.addEventListener("mousemove", (event) => { const box = boxOf(event.target); box ? showTip(box, event.clientX, event.clientY) : hideTip(); });
  chart.addEventListener("mouseleave", hideTip);
  chart.addEventListener("click", (event) => { const box = boxOf(event.target); if (box) { selected = box.key; hideTip(); choose(box); } });
  chart.addEventListener("focusin", (event) => {
    const box = boxOf(event.target);
    if (!box) return;
    for (const one of chart.querySelectorAll("[tabindex='0']")) one.tabIndex = -1;
    event.target.tabIndex = 0;
    selected = box.key;
    $("copy").disabled = false;
    if (!event.target.matches(":focus-visible")) return;
    const { left, bottom } = event.target.getBoundingClientRect();
    showTip(box, Math.max(0, left), bottom - 14);
  });
  chart.addEventListener("focusout", hideTip);
  chart.addEventListener("keydown", (event) => {
    const box = boxOf(event.target);
    if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = { ArrowUp: () => drawn.boxes[box.up], ArrowDown: () => widestBelow(box), ArrowLeft: () => beside(box, -1), ArrowRight: () => beside(box, 1) }[event.key];
    if (to) {
      event.preventDefault();
      const next = to();
      if (next) next.element.focus();
    } else if (event.key === "Enter") {
      event.preventDefault();
      choose(box);
    }
  });
}
const indexOf = (box) => Number(box.element.dataset.i);
function widestBelow(box) {
  const i = indexOf(box);
  return drawn.boxes.filter((one) => one.up === i).sort((a, b) => b.n - a.n)[0];
}
// The next box of the same row.
function beside(box, direction) {
  const row = drawn.boxes.filter((one) => one.depth === box.depth && !one.above).sort((a, b) => a.x - b.x);
  return row[row.indexOf(box) + direction];
}
// The box's stack as text, the root first. In the graph of callers the innermost function comes first.
function stackText() {
  const lines = [];
  for (let box = drawn && drawn.boxes.find((one) => one.key === selected); box; box = drawn.boxes[box.up]) lines.unshift(nameOf(box.frame));
  return lines.slice(1).join("\n");
}
function focusSelected() {
  const box = drawn.boxes.find((one) => one.key === selected);
  if (box) box.element.focus({ preventScroll: true });
}
