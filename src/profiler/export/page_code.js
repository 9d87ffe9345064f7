// Source lines and instructions of the chosen function. A served page asks its server for them, which answers with the
// lines of report --annotate --json. A page that is a file says the command.
const MOST_INSTRUCTIONS = 4000, QUIET_RUN = 8, LANE = 8;  // LANE: pixels of a jump, as in the style sheet
let code = { key: "", lines: null, failed: "" }, codeRequest = null;

const quoted = (text) => /^[\w.+:\/-]+$/.test(text) && !text.startsWith("-") ? text : `'${text.replaceAll("'", "'\\''")}'`;
function annotateCommand(id) {
  const chosen = names.values.length > 1 ? ` --value ${quoted(value.name)}` : "";
  return `windlass report --annotate ${quoted(nameOf(id))}${chosen} ${names.file ? quoted(names.file) : "FILE"}`;
}
function codeButton(id) {
  if (!names.served) {
    const text = element("p", "Source and instructions: ", "where");
    text.append(element("code", annotateCommand(id)));
    return text;
  }
  const button = element("button", "Source and instructions");
  button.setAttribute("aria-pressed", String(state.code));
  button.addEventListener("click", () => choose({ code: !state.code }));
  return button;
}
async function askForCode(key, question) {
  if (codeRequest) codeRequest.abort();
  codeRequest = new AbortController();
  code = { key, lines: null, failed: "" };
  try {
    const answered = await fetch(`${location.pathname}/annotate?${new URLSearchParams(question)}`, { signal: codeRequest.signal });
    const text = await answered.text();
    if (code.key !== key) return;
    if (answered.ok) code.lines = text.split("\n").filter((line) => line).map((line) => JSON.parse(line));
    else code.failed = text;
  } catch (error) {
    if (code.key !== key || error.name === "AbortError") return;
    code.failed = `The server does not answer: ${error.message}`;
  }
  showCode(true);
}
function showCode(table) {
  const box = $("code");
  box.hidden = !(table && state.code && state.chosen >= 0 && names.served);
  if (box.hidden) return;
  const question = { function: nameOf(state.chosen), value: value.name }, key = JSON.stringify(question);
  if (code.key !== key) askForCode(key, question);
  if (box.dataset.key === key && code.lines && box.dataset.whole) return;
  box.dataset.key = key;
  box.dataset.whole = code.lines ? "1" : "";
  const close = element("button", "Close");
  close.addEventListener("click", () => choose({ code: false }));
  const head = element("h2", question.function);
  box.replaceChildren(close, head);
  if (code.failed) box.append(element("p", code.failed, "warning"), element("code", annotateCommand(state.chosen)));
  else if (!code.lines) box.append(element("p", "Reading the files of the code…", "where"));
  else showLines(box, code.lines);
}

// ---- both columns --------------------------------------------------------------------------------------------------
function heat(cell, n, most) {
  if (n > 0) cell.style.background = `color-mix(in srgb, var(--heat) ${Math.round(6 + 34 * Math.min(1, n / most))}%, transparent)`;
  return cell;
}
function weightCells(line, all, most) {
  const cells = [line.self, line.total].map((n) => {
    const cell = element("td", n ? share(n, all) : "", "number");
    cell.title = n ? amount(n) : "";
    return cell;
  });
  heat(cells[0], line.self, most);
  return cells;
}
const fileName = (path) => path.slice(path.lastIndexOf("/") + 1);
const placeKey = (line) => line.line ? `${line.file}:${line.line}` : "";
function linesTable(caption, heads) {
  const table = element("table"), head = element("tr"), top = element("thead");
  for (const [text, className] of heads) head.append(element("th", text, className));
  top.append(head);
  table.append(element("caption", caption), top);
  return table;
}
function showLines(box, lines) {
  const [head] = lines, sides = element("div", undefined, "sides"), source = element("div"), machine = element("div");
  const note = head.without_code ? ` ${share(head.without_code, head.all)} have no instructions here.` : "";
  box.append(element("p", `Self ${amount(head.self)} (${share(head.self, head.all)}), total ${amount(head.total)} (${share(head.total, head.all)}) of all ${value.value}, of every process.${note}`, "where"));
  const most = Math.max(1, ...lines.slice(1).map((line) => line.type === "code" ? 0 : line.self));
  showSource(source, lines.filter((line) => line.type === "source_line"), head.all, most);
  showMachine(machine, lines, head, most);
  sides.append(source, machine);
  box.append(sides);
}
// Marks what belongs to a source line on both sides.
function mark(key) {
  for (const row of $("code").querySelectorAll("[data-place]")) {
    row.classList.toggle("same", row.dataset.place === key);
    if (row.dataset.place === key && row.hidden) row.closest("tbody").previousElementSibling.querySelector("button").click();
  }
  const first = $("code").querySelector(".sides > :last-child [data-place].same");
  if (first) first.scrollIntoView({ block: "nearest" });
}
function showSource(to, lines, all, most) {
  const heads = [["self", "number"], ["total", "number"], ["line", "number"], ["source"]];
  for (const file of new Set(lines.map((line) => line.file))) {
    const table = linesTable(file || "no source file known", heads), body = element("tbody"), own = lines.filter((line) => line.file === file);
    for (const line of own) {
      const row = element("tr"), number = element("td", undefined, "number"), text = element("td", line.text === null ? "" : line.text, "text");
      row.dataset.place = placeKey(line);
      row.dataset.self = line.self;
      row.dataset.total = line.total;
      if (line.line) {
        const button = element("button", String(line.line), "plain");
        button.title = "Mark its instructions";
        button.addEventListener("click", () => mark(row.dataset.place));
        number.append(button);
      }
      if (line.inlined.length) text.append(inlinedCalls(line, all));
      row.append(...weightCells(line, all, most), number, text);
      body.append(row);
    }
    table.append(body);
    to.append(table);
    if (file && own.every((line) => line.text === null))
      to.append(element("p", "The file cannot be read here. windlass view --source-map FROM=TO says where it is.", "where"));
  }
}
function inlinedCalls(line, all) {
  const details = element("details"), sum = element("summary", line.inlined.length === 1 ? "1 inlined call" : `${line.inlined.length} inlined calls`);
  details.append(sum);
  for (const { function: name, total } of line.inlined) details.append(element("div", `↳ ${name} ${share(total, all)}`));
  return details;
}
function showMachine(to, lines, head, most) {
  let part = null, shown = 0, left = 0;
  const parts = [];
  for (const line of lines) {
    if (line.type === "code") parts.push(part = { of: line, instructions: [] });
    if (line.type !== "instruction") continue;
    if (shown++ < MOST_INSTRUCTIONS) part.instructions.push(line);
    else left++;
  }
  const heads = [["self", "number"], ["total", "number"], ["address", "address"], ["jumps", "jumps"], ["instruction"], ["line", "place"]];
  for (const { of, instructions } of parts) {
    const table = linesTable(`${of.architecture} code in ${fileName(of.module)}${of.function ? `: ${of.function}` : ""}`, heads);
    for (const group of instructionGroups(instructions)) addInstructions(table, group, head.all, most);
    to.append(table);
  }
  const notes = [];
  if (!parts.length) notes.push("No instructions: the file of the code is missing, is another one, or there is none.");
  if (left) notes.push(`${count(left)} more instructions: ${annotateCommand(state.chosen)}`);
  if (head.more_parts) notes.push(`${count(head.more_parts)} more functions have its code.`);
  for (const note of notes) to.append(element("p", note, "where"));
}
// Neighbours that are folded into one row: those of one inlined call, and long runs without samples.
function instructionGroups(instructions) {
  const groups = [];
  for (const one of instructions) {
    const inlined = one.inlined[0] || "", key = inlined ? `inlined ${inlined} ${placeKey(one)}` : one.total ? "" : "quiet";
    const last = groups[groups.length - 1];
    if (last && last.key === key) last.instructions.push(one);
    else groups.push({ key, inlined, instructions: [one] });
  }
  for (const group of groups) group.folded = group.inlined ? `↳ ${shortened(group.inlined, 44)}` : group.key === "quiet" && group.instructions.length > QUIET_RUN ? "without samples" : "";
  return groups;
}
// ---- jumps ---------------------------------------------------------------------------------------------------------
// The server sends the arrows of a line as the terminal has them, such as "│╰→". They are drawn as lines, which join
// across rows of any height.
const UP = "│╰├", DOWN = "│╭├", CORNERS = "╭╰├";
function jumpsCell(arrows) {
  const cell = element("td", undefined, "jumps");
  const draw = (kind, left) => {
    const part = element("span", undefined, kind);
    part.style.left = `${left}px`;
    cell.append(part);
  };
  let across = false;  // from a corner to the instruction, over other lanes, too
  [...arrows].forEach((arrow, lane) => {
    if (UP.includes(arrow)) draw("up", LANE * lane + LANE / 2);
    if (DOWN.includes(arrow)) draw("down", LANE * lane + LANE / 2);
    if (across && arrow !== "→") draw("across", LANE * lane);
    else if (CORNERS.includes(arrow)) draw("across corner", LANE * lane + LANE / 2);
    if (arrow === "→") draw("tip", LANE * lane);
    across ||= CORNERS.includes(arrow);
  });
  return cell;
}
// In the row of a folded group: what passes it, and what begins or ends in it. Open, what leads to its first row.
function foldedJumps(instructions, open) {
  const lanes = instructions.map((one) => [...one.jumps]), [first] = lanes, last = open ? first : lanes[lanes.length - 1];
  return first.map((arrow, lane) => {
    const up = UP.includes(arrow), down = open ? up : DOWN.includes(last[lane]);
    if (up && down) return open || lanes.every((one) => one[lane] === "│") ? "│" : "├";
    return up ? "╰" : down ? "╭" : " ";
  }).join("");
}
function addInstructions(table, { folded, inlined, instructions }, all, most) {
  const body = element("tbody"), rows = instructions.map((one) => instructionRow(one, all, most));
  if (folded) {
    const head = element("tbody"), row = element("tr"), cell = element("td"), button = element("button", `▸ ${folded}`, "plain");
    let jumps = jumpsCell(foldedJumps(instructions, false));
    button.title = inlined;
    const sum = { self: instructions.reduce((n, one) => n + one.self, 0), total: 0 };  // samples may pass several of these
    button.setAttribute("aria-expanded", "false");
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", String(open));
      button.textContent = `${open ? "▾" : "▸"} ${folded}`;
      for (const one of rows) one.hidden = !open;
      const now = jumpsCell(foldedJumps(instructions, open));
      jumps.replaceWith(now);
      jumps = now;
    });
    for (const one of rows) one.hidden = true;
    cell.append(button);
    row.append(...weightCells(sum, all, most), element("td", instructions[0].address.toString(16), "address"), jumps, cell, element("td", count(instructions.length), "place"));
    head.append(row);
    table.append(head);
  }
  body.append(...rows);
  table.append(body);
}
function instructionRow(one, all, most) {
  const row = element("tr"), text = element("td", one.text, "text");
  row.dataset.place = placeKey(one);
  text.title = [...one.inlined.map((name) => `in ${name}, inlined`), one.bytes].join("\n");
  row.dataset.self = one.self;
  row.dataset.total = one.total;
  row.append(...weightCells(one, all, most), element("td", one.address.toString(16), "address"), jumpsCell(one.jumps), text,
             element("td", one.line ? `${fileName(one.file)}:${one.line}` : "", "place"));
  return row;
}
