// What is chosen, in the address; questions to the worker; everything around the flame graph.
const VIEW = { GRAPH: "graph", CALLERS: "callers", FUNCTIONS: "functions", CHART: "chart" };
const ROWS = 200;  // of the table, until more are asked for
const NOTHING_CHOSEN = { value: 0, process: -1, thread: -1, labels: [], from: -1, to: -1, lane: -1, query: "", view: VIEW.GRAPH, zoom: "",
  chosen: -1, code: false, size: SIZES.LARGER, colour: COLOURS.MODULE, theme: "" };
const darkSystem = window.matchMedia("(prefers-color-scheme: dark)");
let state = { ...NOTHING_CHOSEN }, order = 1, limit = ROWS, answer = null;
const percent = (n) => share(n, answer.summary.samples);

// ---- the worker ----------------------------------------------------------------------------------------------------
const chartWidth = () => document.body.clientWidth - 40;  // whether the chart is shown now or not
const SEARCH_MS = 2000;  // (a+)+$ on long names can take years
let packed = $("profile").textContent, fresh = false;  // fresh: another profile has come in place of the one before
let worker = null, ready = false, asked = 0, searching = 0, refused = "";  // refused: the expression that took too long
function ask() {
  if (!ready) return;
  if (state.query !== refused) refused = "";
  worker.postMessage({ ...state, query: refused ? "" : state.query, ...askedLanes(), id: ++asked, order, limit, width: chartWidth() });
}
function startWorker() {
  ready = false;
  worker = new Worker(URL.createObjectURL(new Blob([$("calculator").textContent], { type: "text/javascript" })));
  worker.onmessage = ({ data }) => hear(data);
  worker.onerror = (event) => say(`The page's script failed: ${event.message}`);
  worker.postMessage({ profile: packed });
}
// Nothing but its end stops a worker within an expression.
function abandonSearch(query) {
  worker.terminate();
  refused = query;
  live.asking = false;  // newer data that it had not read come again
  startWorker();
}
function hear(data) {
  if (data.failed) {
    say(`This browser cannot show the profile: ${data.failed}`);
  } else if (data.searching !== undefined) {
    searching = setTimeout(() => abandonSearch(data.searching), SEARCH_MS);
  } else if (data.searched) {
    clearTimeout(searching);
  } else if (data.names) {
    ready = true;
    if (!names || fresh) begin(JSON.parse(data.names));
    else if (data.kept.length) takeNewer(data.names, data.kept);  // else a new worker has the same data
    $("time").hidden = !names.threads.length;
    showLive();
    watchLive();
    worker.postMessage({ ...NOTHING_CHOSEN, id: 0, order: 1, limit: 0, view: VIEW.FUNCTIONS });  // for the modules' hues
    ask();
  } else if (data.id === 0) {
    chooseHues(data.summary.modules);
  } else if (data.id === asked) {  // else a newer question is on its way
    answer = data;
    show();
  }
}
function begin(read) {
  names = read;
  fresh = false;
  order = names.diff ? 0 : 1;  // as the command ranks functions
  readAddress();
}
// Shows another profile in this page (page_store.js). The choices of the address are kept, as far as it has them.
function takeProfile(data) {
  if (worker) worker.terminate();
  clearTimeout(searching);
  packed = data;
  fresh = true;
  hideTip();
  drawn = answer = time = null;
  selected = refused = "";
  [limit, laneCount, openProcess] = [ROWS, LANES_AT_FIRST, -1];
  startWorker();
}
const say = (text) => { $("chart").replaceChildren(element("div", text)); $("chart").firstChild.id = "empty"; };

// ---- the address ---------------------------------------------------------------------------------------------------
function addressOf() {
  const to = new URLSearchParams();
  if (state.query) to.set("q", state.query);
  if (state.view !== VIEW.GRAPH) to.set("view", state.view);
  if (state.value) to.set("event", names.values[state.value].name);
  if (state.process >= 0) to.set("process", names.processes[state.process]);
  if (state.thread >= 0) to.set("thread", nameOf(state.thread));
  for (const [key, text] of state.labels) to.append("label", `${key}=${text}`);
  if (state.from >= 0) { to.set("from", secondsOf(state.from)); to.set("to", secondsOf(state.to)); }
  if (state.view === VIEW.CHART && state.lane >= 0) to.set("tid", names.threads[state.lane][1]);
  if (state.view === VIEW.FUNCTIONS && state.chosen >= 0) to.set("function", nameOf(state.chosen));
  if (state.view === VIEW.FUNCTIONS && state.code) to.set("code", "");
  if (state.zoom && !(goesOn() && !names.live.file)) to.set("zoom", state.zoom);  // another box in newer data
  if (state.size !== SIZES.LARGER) to.set("size", state.size);
  if (state.colour !== COLOURS.MODULE) to.set("colour", state.colour);
  if (state.theme) to.set("theme", state.theme);
  return to.toString();
}
function stateOf(from) {
  const known = (values, wanted, otherwise) => values.includes(wanted) ? wanted : otherwise;
  const event = from.get("event"), thread = from.get("thread"), wanted = from.get("function");
  const byName = names.values.findIndex((one) => one.name === event), byEvent = names.values.findIndex((one) => one.event === event);
  return {
    value: Math.max(0, byName >= 0 ? byName : byEvent),
    process: names.processes.indexOf(from.get("process")),
    thread: thread === null ? -1 : names.frames.findIndex((frame) => frame.kind === KIND.COMM && frame.name === thread),
    labels: from.getAll("label").filter((one) => one.includes("=")).map((one) => [one.slice(0, one.indexOf("=")), one.slice(one.indexOf("=") + 1)]),
    ...rangeOf(from),
    lane: names.threads.findIndex(([, tid]) => String(tid) === from.get("tid")),
    query: from.get("q") || "",
    view: known(Object.values(VIEW), from.get("view"), VIEW.GRAPH),
    zoom: from.get("zoom") || "",
    chosen: wanted === null ? -1 : names.frames.findIndex((frame, i) => isCode(i) && frame.name === wanted),
    code: from.has("code"),
    size: known(Object.values(SIZES), from.get("size"), SIZES.LARGER),
    colour: known(Object.values(COLOURS), from.get("colour"), COLOURS.MODULE),
    theme: known(["dark", "light"], from.get("theme"), ""),
  };
}
function readAddress() {
  state = stateOf(new URLSearchParams(location.hash.slice(1)));
  $("query").value = state.query;
}
// Each choice is a step that Back undoes. The letters of a search are one step.
let typing = false;
function choose(changes) {
  const before = addressOf(), letters = Object.keys(changes).length === 1 && changes.query !== undefined;
  Object.assign(state, changes);
  const now = addressOf();
  if (now !== before) history[letters && typing ? "replaceState" : "pushState"](null, "", now ? "#" + now : location.pathname + location.search);
  typing = letters;
  ask();
}
window.addEventListener("popstate", () => { if (names) { typing = false; readAddress(); ask(); } });

// ---- what is shown -------------------------------------------------------------------------------------------------
function show() {
  document.documentElement.dataset.theme = state.theme || (darkSystem.matches ? "dark" : "light");
  document.body.classList.toggle("diff", Boolean(names.diff));
  if (names.diff) showDifferenceAround();
  else showAround();
  const table = state.view === VIEW.FUNCTIONS, empty = answer.summary.samples === 0;
  $("callers").setAttribute("aria-pressed", String(state.view === VIEW.CALLERS));
  $("table").setAttribute("aria-pressed", String(table));
  $("time").setAttribute("aria-pressed", String(state.view === VIEW.CHART));
  $("functions").hidden = !table || empty;
  $("chart").hidden = table && !empty;
  $("chartAxis").hidden = state.view !== VIEW.CHART || empty;
  $("reset").disabled = !state.zoom;
  $("copy").disabled = table;
  $("svg").disabled = table || empty;
  showCode(table && !empty);
  $("note").textContent = table ? "" : noteOfGraph();
  if (empty) say(goesOn() ? `No ${value.counted} yet.` : `No ${value.counted} were recorded.`);
  else if (table) showFunctions();
  else showGraph();
}
function showAround() {
  value = names.values[state.value];
  $("colour").hidden = false;
  $("size").hidden = true;
  showHeader();
  showMenus();
  showTime();
  showLegend();
  showFound();
}
function showGraph() {
  const walks = $("chart").contains(document.activeElement);
  showBoxes(answer, state.colour, Boolean(answer.found));
  if (walks) focusSelected();
  if (state.view === VIEW.CHART) showAxis($("chartAxis"), answer.drawn.from, answer.drawn.whole);
}
function noteOfGraph() {
  if (names.diff) return noteOfDifference();
  const what = state.view === VIEW.CALLERS ? "Functions by their own samples, callers below them. " : "";
  if (state.view === VIEW.CHART && answer.drawn) return noteOfChart();
  const least = answer.drawn ? Math.ceil(answer.drawn.least) : 0;
  return what + (least > 1 ? `Frames with less than ${amount(least)} are not drawn until you zoom in (click a frame). All numbers count them.` : "");
}
function fact(name, text, n, className) {
  const row = element("div", undefined, className), number = element("dd", text);
  number.dataset.n = n;
  row.append(element("dt", name), number);
  $("facts").append(row);
}
function showHeader() {
  const { samples, truncated, chained, whole: everything, ends, labels } = answer.summary;
  $("facts").replaceChildren();
  $("notes").replaceChildren();
  const title = document.querySelector("h1");
  title.textContent = "Windlass profile ";
  if (names.start_unix_ms) title.append(element("small", new Date(names.start_unix_ms).toISOString().replace("T", " ").slice(0, 19) + " UTC"));
  const whole = samples - truncated - chained;
  fact(value.value, plain(samples), samples);
  // 100% only if every stack is whole. A few in a thousand are nothing to be alarmed about.
  const complete = !samples ? 0 : whole === samples ? 100 : Math.min(99.99, 100 * whole / samples);
  const grade = (part) => part * 1000 <= samples ? "good" : part * 20 <= samples ? "" : "bad";
  if (names.ends_known) fact("stacks complete", complete.toFixed(2) + "%", whole, grade(samples - whole));
  else fact("stacks complete", "not known", 0);
  if (chained) fact("chained by frame pointers", plain(chained), chained, grade(chained));
  if (names.ends_known) fact("truncated", plain(truncated), truncated, truncated ? grade(truncated) : "");
  fact("lost", count(names.lost), names.lost, names.lost ? grade(names.lost) : "");
  if (value.hz) fact("frequency", Math.round(value.hz) + " Hz", value.hz);
  const seconds = state.from >= 0 ? Math.min((state.to - state.from) / 1e9, names.seconds) : names.seconds;
  if (seconds) fact("duration", seconds.toFixed(1) + " s", seconds);
  if (value.hz && samples) fact(value.event === "cpu" ? "CPU time" : value.event, (samples / value.hz).toFixed(1) + " s", samples / value.hz);
  const notes = names.comments.slice(), chosen = [];
  if (state.process >= 0) chosen.push(names.processes[state.process]);
  if (state.thread >= 0) chosen.push((names.grouped ? "group " : "thread ") + nameOf(state.thread));
  if (state.from >= 0) chosen.push(`${secondsOf(state.from)} s to ${secondsOf(state.to)} s`);
  for (const [key, text] of state.labels) chosen.push(`${key}=${text}`);
  if (chosen.length) notes.unshift(`All numbers are of ${chosen.join(", ")}: ${share(samples, everything)} of ${amount(everything)}.`);
  for (const [key, shares, more, without] of labels) {
    notes.push(labelNote(key, shares, more, without));
  }
  for (const [reason, n] of ends) notes.push(`Truncated (${reason}): ${amount(n)}, ${percent(n)}; hatched in the graph.`);
  for (const text of notes) {
    const item = element("li");
    item.append(text);
    $("notes").append(item);
  }
}
// Each value chooses the samples that have it, and is chosen until it is clicked again.
function labelNote(key, shares, more, without) {
  const line = element("span", `Label ${key}: `);
  for (const [text, n] of shares) {
    const button = element("button", `${text} ${percent(n)}`, "value"), is = ([k, v]) => k === key && v === text;
    const chosen = state.labels.some(is);
    button.dataset.n = n;
    button.setAttribute("aria-pressed", String(chosen));
    button.addEventListener("click", () => choose({ labels: chosen ? state.labels.filter((one) => !is(one)) : [...state.labels, [key, text]], zoom: "" }));
    line.append(button, " ");
  }
  const rest = [];
  if (more) rest.push(`${count(more)} more`);
  if (without) rest.push(`none ${percent(without)}`);
  line.append(rest.join(", "));
  return line;
}
function fillSelect(select, options, chosen, least) {
  select.replaceChildren(...options.map(([key, text]) => { const option = element("option", text); option.value = key; return option; }));
  select.value = chosen;
  select.hidden = options.length < least;
}
function showMenus() {
  const { processes, threads, all } = answer.summary, ofThreads = threads.reduce((sum, [, n]) => sum + n, 0);
  fillSelect($("event"), names.values.map((one, i) => [i, `Value: ${one.name}`]), state.value, 2);
  fillSelect($("process"), [[-1, "All processes"], ...processes.map(([i, n]) => [i, `${names.processes[i]}: ${share(n, all)}`])], state.process, 3);
  fillSelect($("thread"), [[-1, names.grouped ? "All groups" : "All threads"], ...threads.map(([i, n]) => [i, `${nameOf(i)}: ${share(n, ofThreads)}`])], state.thread, 3);
  $("process").hidden &&= state.process < 0;
  $("thread").hidden &&= state.thread < 0;
  $("colour").value = state.colour;
  $("theme").textContent = isDark() ? "Light" : "Dark";
}
function showFound() {
  const { found } = answer;
  if (showRefused()) return;
  $("match").className = found && !found.samples ? "none" : "";
  $("match").textContent = !found ? "" : !found.samples ? "no match" :
    `${percent(found.samples)} of ${value.value} (${plain(found.samples)}), ${count(found.functions)} function${found.functions === 1 ? "" : "s"}`;
  $("match").dataset.n = found ? found.samples : "";
}
// Is the expression one that took too long? Then nothing is searched.
function showRefused() {
  if (!refused) return false;
  $("match").className = "none";
  $("match").textContent = "This expression takes too long. Nothing is searched.";
  $("match").dataset.n = "";
  return true;
}

// ---- the legend ----------------------------------------------------------------------------------------------------
function legendEntry(colour, text, n, query, title) {
  const entry = element("button"), square = element("i");
  square.style.background = colour;
  entry.append(square, text);
  if (n !== undefined) {
    const number = element("span", percent(n));
    number.dataset.n = n;
    entry.append(number);
  }
  if (title) entry.title = title;
  if (query) entry.addEventListener("click", () => search(state.query === query ? "" : query));
  else entry.disabled = true;
  $("legend").append(entry);
}
function showLegend() {
  const { modules, truncated } = answer.summary;
  $("legend").replaceChildren();
  if (state.colour === COLOURS.MODULE)
    for (const [i, n] of modules.slice(0, 14))
      legendEntry(tone(moduleHues[i], 0), names.modules[i].name, n, "module:" + names.modules[i].name, `${names.modules[i].path}: ${value.value} in its own code`);
  if (state.colour === COLOURS.KIND) for (const kind of Object.values(KINDS)) legendEntry(tone(kind, 0), kind[2]);
  if (state.colour === COLOURS.CERTAINTY)
    names.certainties.forEach((text, i) => legendEntry(tone(CERTAINTIES[i], 0), text, undefined, "", "of the least certain frame of most of the samples"));
  if (truncated) legendEntry("repeating-linear-gradient(45deg, #e5735f 0 3px, #fff8 3px 6px)", "truncated stacks", truncated, "\\[truncated");
}

// ---- functions, with callers and callees ---------------------------------------------------------------------------
function tableOf(caption, heads, entries) {
  const table = element("table"), head = element("tr"), body = element("tbody"), top = element("thead");
  if (caption) table.append(element("caption", caption));
  for (const [text, className] of heads) {
    const cell = element("th", undefined, className);
    cell.append(text);
    head.append(cell);
  }
  for (const { id, cells } of entries) {
    const row = element("tr");
    cells.forEach(([text, n, change], i) => {
      const cell = element("td", text, heads[i][1]);
      if (n !== undefined) cell.dataset.n = n;
      if (change) cell.classList.add(change);
      else if (n !== undefined) cell.title = amount(n);
      if (heads[i][0] === "function" && id >= 0) cell.frame = id;
      row.append(cell);
    });
    if (isCode(id)) {
      row.title = nameOf(id);
      row.tabIndex = 0;
      row.setAttribute("aria-selected", String(id === state.chosen));
      row.addEventListener("click", () => choose({ chosen: id }));
      row.addEventListener("keydown", (event) => { if (event.key === "Enter") choose({ chosen: id }); });
    }
    body.append(row);
  }
  top.append(head);
  table.append(top, body);
  return table;
}
function sorter(text, by) {
  const button = element("button", text);
  button.setAttribute("aria-pressed", String(order === by));
  button.addEventListener("click", () => { order = by; ask(); });
  return button;
}
// The end of a name tells functions apart, and cells cut theirs: fitNames() leaves out the middle instead.
const cellName = (id, width = 120) => shortened(names.frames[id].name, width, names.frames[id].plain);
function fitNames() {
  const cells = [...$("functions").querySelectorAll("td")].filter((cell) => cell.frame >= 0);
  for (let round = 0; round < 5; ++round) {
    const wide = cells.filter((cell) => cell.scrollWidth > cell.clientWidth && cell.clientWidth > 0);
    const widths = wide.map((cell) => Math.floor(cell.textContent.length * cell.clientWidth / cell.scrollWidth) - round);
    wide.forEach((cell, i) => { cell.textContent = cellName(cell.frame, Math.max(4, widths[i])); });
    if (!wide.length) return;
  }
}
function showFunctions() {
  $("list").replaceChildren(names.diff ? showDifferenceTable() : functionTable());
  if (answer.more) {
    const more = element("button", `${count(answer.more)} more`);
    more.addEventListener("click", () => { limit += 5 * ROWS; ask(); });
    $("list").append(more);
  }
  showChosen();
  fitNames();
}
function functionTable() {
  const entries = answer.rows.map(([id, self, total]) =>
    ({ id, cells: [[percent(self), self], [percent(total), total], [cellName(id)], [moduleText(id)]] }));
  const heads = [[sorter("self", 1), "number"], [sorter("total", 2), "number"], ["function"], ["module", "module"]];
  return tableOf("", heads, entries);
}
function showChosen() {
  const box = $("function"), id = state.chosen;
  box.replaceChildren();
  if (id < 0) { box.append(element("p", "Choose a function to see who calls it and whom it calls.", "where")); return; }
  const frame = names.frames[id], module = moduleOf(id);
  box.append(element("h2", frame.name));
  if (module) box.append(element("div", frame.modules ? moduleText(id) : module.path, "where"));
  if (frame.file) box.append(element("div", frame.file + (frame.line ? ":" + frame.line : ""), "where"));
  if (names.diff) showDifferenceChosen(box, id);
  else showNeighbours(box, frame);
}
function showNeighbours(box, frame) {
  const { total, self, callers, callees, lines } = answer.neighbours;
  box.append(codeButton(state.chosen));
  box.append(element("div", `${amount(total)} (${percent(total)}), self ${amount(self)} (${percent(self)})`));
  const heads = [["of it", "number"], [value.value, "number"], ["function"]];
  const cells = ([other, n]) => ({ id: other, cells: [[share(n, total), n], [plain(n)], [other < 0 ? "(none)" : cellName(other)]] });
  box.append(tableOf("Callers", heads, callers.map(cells)), tableOf("Callees", heads, callees.map(cells)));
  if (!lines.length) return;
  const rows = lines.map(([line, n]) => ({ id: -1, cells: [[share(n, self), n], [plain(n)], [`${frame.file || "line "}:${line}`]] }));
  box.append(tableOf(`Source lines, by ${value.value} of its own`, [["of self", "number"], [value.value, "number"], ["line"]], rows));
}

// ---- input ---------------------------------------------------------------------------------------------------------
function search(query) {
  $("query").value = query;
  limit = ROWS;
  choose({ query });
}
const toggle = (to) => choose({ view: state.view === to ? VIEW.GRAPH : to, zoom: "" });
let waiting = 0;
const soon = (action) => { clearTimeout(waiting); waiting = setTimeout(action, 120); };
$("query").addEventListener("input", () => soon(() => choose({ query: $("query").value })));
$("query").addEventListener("change", () => { typing = false; });
$("callers").addEventListener("click", () => toggle(VIEW.CALLERS));
$("time").addEventListener("click", () => toggle(VIEW.CHART));
$("table").addEventListener("click", () => toggle(VIEW.FUNCTIONS));
$("event").addEventListener("change", () => choose({ value: Number($("event").value) }));
$("process").addEventListener("change", () => choose({ process: Number($("process").value), thread: -1, zoom: "" }));
$("thread").addEventListener("change", () => choose({ thread: Number($("thread").value), zoom: "" }));
$("size").addEventListener("change", () => choose({ size: $("size").value }));
$("colour").addEventListener("change", () => choose({ colour: $("colour").value }));
$("theme").addEventListener("click", () => choose({ theme: isDark() ? "light" : "dark" }));
$("reset").addEventListener("click", () => choose({ zoom: "" }));
$("svg").addEventListener("click", saveSvg);
$("copy").addEventListener("click", () => document.execCommand("copy"));
document.addEventListener("copy", (event) => {
  const text = state.view === VIEW.FUNCTIONS || String(getSelection()) || event.target.matches("input") ? "" : stackText();
  if (!text) return;
  event.clipboardData.setData("text/plain", text);
  event.preventDefault();
});
watchBoxes((box) => {
  if (box.frame === NARROWER) choose({ view: VIEW.FUNCTIONS, zoom: "" });
  else if (state.view === VIEW.CHART) chooseRange(drawn.from + box.x, drawn.from + box.x + box.n);
  else choose({ zoom: box.key === "0" ? "" : box.key });
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    $("query").blur();
    $("query").value = "";
    choose({ query: "", zoom: "", from: -1, to: -1, labels: [] });
  } else if (!event.target.matches("input, select") && !event.ctrlKey && !event.metaKey && !event.altKey) {
    if (event.key === "/") { event.preventDefault(); $("query").focus(); $("query").select(); }
    if (event.key === "c") toggle(VIEW.CALLERS);
    if (event.key === "f") toggle(VIEW.FUNCTIONS);
    if (event.key === "t" && names.threads.length) toggle(VIEW.CHART);
  }
});
window.addEventListener("resize", () => { if (names) soon(ask); });
darkSystem.addEventListener("change", () => { if (answer) show(); });

document.documentElement.dataset.theme = darkSystem.matches ? "dark" : "light";
say(packed ? "Unpacking the profile…" : "Reading the profile…");
if (packed) startWorker();
$("profile").remove();
