"use strict";
(() => {
  const events = JSON.parse(document.getElementById("profile").textContent);
  let profile, totals, modules, frames, subjects;  // of the event that is shown
  const KIND = { FUNCTION: 0, UNNAMED: 1, COMM: 2, TRUNCATED: 3 };
  const VIEW = { GRAPH: "graph", CALLERS: "callers", FUNCTIONS: "functions" };
  const ROWS = 200;  // of the table, until more are asked for
  // What can be looked at: the whole profile, or one process of it.
  let subject, view = VIEW.GRAPH, thread = "", chosen = -1;  // chosen: the frame that the table explains
  const samples = () => subject.nodes.total[0] || 0;
  const $ = (id) => document.getElementById(id);
  const count = (n) => n.toLocaleString("en-US");
  const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
  const SCALES = { nanoseconds: 1, microseconds: 1e3, milliseconds: 1e6, seconds: 1e9, bytes: 1 };
  // Of the event's unit: "1.23 ms", "12 samples".
  function amount(n) {
    const scale = SCALES[profile.unit];
    if (!scale) return `${count(n)} ${profile.unit === "count" ? profile.value : profile.unit}`;
    const steps = profile.unit === "bytes" ? [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]] : TIMES;
    const real = n * scale;
    const [size, unit] = steps.find(([least]) => real >= least) || steps[steps.length - 1];
    const part = real / size;
    return `${size === 1 ? real : part.toFixed(part < 9.995 ? 2 : part < 99.95 ? 1 : 0)} ${unit}`;
  }
  const plain = (n) => profile.unit === "count" ? count(n) : amount(n);  // without the value's name
  const share = (n, all) => (all ? 100 * n / all : 0).toFixed(2) + "%";
  const percent = (n) => share(n, samples());
  const percentOfAll = (n) => share(n, totals.samples);
  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  // ---- header --------------------------------------------------------------------------------------------------
  function fact(name, value, className) {
    const row = element("div", undefined, className);
    row.append(element("dt", name), element("dd", value));
    $("facts").append(row);
  }
  function showHeader() {
    $("facts").replaceChildren();
    $("notes").replaceChildren();
    const title = document.querySelector("h1");
    title.textContent = "Windlass profile ";
    if (totals.start_unix_ms) title.append(element("small", new Date(totals.start_unix_ms).toISOString().replace("T", " ").slice(0, 19) + " UTC"));
    const whole = totals.samples - totals.truncated - totals.chained;
    fact(profile.value, plain(totals.samples));
    // Rounded down: 100% only if every stack is whole. A few in a thousand are nothing to be alarmed about.
    const complete = totals.samples ? Math.floor(10000 * whole / totals.samples) / 100 : 0;
    const grade = (part) => part * 1000 <= totals.samples ? "good" : part * 20 <= totals.samples ? "" : "bad";
    fact("stacks complete", complete.toFixed(2) + "%", grade(totals.samples - whole));
    if (totals.chained) fact("chained by frame pointers", plain(totals.chained), grade(totals.chained));
    fact("truncated", plain(totals.truncated), totals.truncated ? grade(totals.truncated) : "");
    fact("lost", count(totals.lost), totals.lost ? grade(totals.lost) : "");
    if (totals.hz) fact("frequency", totals.hz + " Hz");
    if (totals.seconds) fact("duration", totals.seconds.toFixed(1) + " s");
    if (totals.sampled_seconds) fact(profile.event === "cpu" ? "CPU time" : profile.event, totals.sampled_seconds.toFixed(1) + " s");
    const notes = profile.comments.slice();
    for (const [key, shares, more, without] of profile.labels) {
      const parts = shares.map(([value, n]) => `${value} ${percentOfAll(n)}`);
      if (more) parts.push(`${count(more)} more`);
      if (without) parts.push(`none ${percentOfAll(without)}`);
      notes.push(`Label ${key}: ${parts.join(", ")}`);
    }
    for (const [reason, n] of profile.ends) notes.push(`Truncated (${reason}): ${amount(n)}, ${percentOfAll(n)}; hatched in the graph.`);
    if (profile.left_out.nodes)
      notes.push(`${count(profile.left_out.nodes)} frames with less than ${amount(profile.left_out.below)} (${percentOfAll(profile.left_out.below)}) ` +
                 "are too narrow to draw and left out, also of search; the counts of their callers include them.");
    for (const text of notes) $("notes").append(element("li", text));
  }

  // ---- colours -------------------------------------------------------------------------------------------------
  // Hues well apart for the modules that matter most; the rest by a hash of the name. The kernel has its own.
  const HUES = [212, 145, 42, 268, 178, 322, 88, 235, 24, 195, 290, 62];
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const hash = (text) => { let h = 7; for (let i = 0; i < text.length; i++) h = (h * 31 + text.charCodeAt(i)) >>> 0; return h; };
  for (const { modules } of events) modules.forEach((module, i) => {
    module.hue = module.kernel ? 8 : i < HUES.length ? HUES[i] : hash(module.name) % 360;
    module.saturation = module.kernel ? 70 : i < HUES.length ? 52 : 34;
  });
  function shade(frame, part) {
    const module = modules[frame.module];
    const step = hash(frame.name) % 9 - 4;  // neighbours of one module stay distinguishable
    if (!module) return dark.matches ? `hsl(220 6% ${34 + step}%)` : `hsl(220 8% ${80 + step}%)`;
    const lightness = dark.matches ? 35 + step : 73 + 1.6 * step;
    return `hsl(${module.hue} ${module.saturation * (part || 1)}% ${lightness}%)`;
  }
  const moduleColour = (module) => shade({ name: "", module: modules.indexOf(module) });
  const highlightColour = () => dark.matches ? "#c026d3" : "#e879f9";
  const stripes = new Map();
  function striped(colour) {
    if (!stripes.has(colour)) {
      const id = "truncated-" + stripes.size;
      let defs = d3.select("#chart svg defs");
      if (defs.empty()) defs = d3.select("#chart svg").append("defs");
      const pattern = defs.append("pattern").attr("id", id).attr("width", 8).attr("height", 8)
        .attr("patternUnits", "userSpaceOnUse").attr("patternTransform", "rotate(45)");
      pattern.append("rect").attr("class", "plain").attr("width", 8).attr("height", 8).style("fill", colour).style("stroke", "none");
      pattern.append("rect").attr("class", "plain").attr("width", 3).attr("height", 8).style("stroke", "none")
        .style("fill", dark.matches ? "#00000073" : "#ffffff8c");
      stripes.set(colour, `url(#${id})`);
    }
    return stripes.get(colour);
  }
  function fill(node) {
    const data = node.data;
    if (node.highlight) return highlightColour();
    if (data.frame.kind === KIND.TRUNCATED) return striped(dark.matches ? "#b3402f" : "#f0907f");
    const colour = shade(data.frame, searching ? 0.35 : 1);
    return data.truncated ? striped(colour) : colour;
  }

  // ---- trees ---------------------------------------------------------------------------------------------------
  // nodes: parallel arrays, parents first; up[i] says how many entries before i its parent stands.
  function treeOf(nodes) {
    const all = [];
    for (let i = 0; i < nodes.frame.length; i++) {
      const frame = frames[nodes.frame[i]];
      const parent = i ? all[i - nodes.up[i]] : null;
      const made = { frame, id: nodes.frame[i], name: frame.name, value: nodes.total[i], self: nodes.self[i], children: [], parent,
                     truncated: frame.kind === KIND.TRUNCATED || (parent !== null && parent.truncated) };
      if (parent) parent.children.push(made);
      all.push(made);
    }
    return all;
  }
  // What runs at the top, callers below it. Functions narrower than a pixel can be most of it: they are one box together,
  // which opens at a click; the last of them have no box of their own even there.
  function callersTree() {
    const root = treeOf(subject.callers)[0];
    const least = root.value / Math.max(200, document.body.clientWidth - 40);
    const wide = root.children.filter((child) => child.value >= least), narrow = root.children.filter((child) => child.value < least);
    const rest = root.value - wide.reduce((sum, child) => sum + child.value, 0);
    const frame = { name: "(narrower functions)", module: -1, kind: KIND.COMM };
    if (rest > 0) wide.push({ frame, id: -1, name: frame.name, value: rest, self: rest, children: narrow, parent: root, truncated: false });
    root.children = wide;
    return root;
  }

  // ---- the chart -----------------------------------------------------------------------------------------------
  const tip = () => {};
  tip.show = (event, node) => {
    const { frame, value, self } = node.data;
    const module = modules[frame.module];
    const box = $("tip");
    box.replaceChildren(element("b", frame.name));
    if (module) box.append(element("div", module.path, "where"));
    if (frame.file) box.append(element("div", frame.file + (frame.line ? ":" + frame.line : ""), "where"));
    box.append(element("div", `${amount(value)} (${percent(value)})` +
      (view === VIEW.CALLERS ? "" : `, self ${amount(self)} (${percent(self)})`), "counts"));
    const everywhere = frame.total !== undefined && frame.kind <= KIND.UNNAMED;
    if (everywhere) box.append(element("div", `everywhere: self ${share(frame.self, totals.samples)}, total ${share(frame.total, totals.samples)}`, "counts where"));
    if (node.data.truncated) box.append(element("div", "This stack is truncated: its outer callers are not known.", "warning"));
    box.style.display = "block";
    const { width, height } = box.getBoundingClientRect();
    box.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
    box.style.top = (event.clientY + 18 + height > innerHeight ? Math.max(4, event.clientY - height - 10) : event.clientY + 18) + "px";
    return tip;
  };
  tip.hide = () => { $("tip").style.display = "none"; return tip; };
  tip.destroy = () => {};

  let searching = "", chart = null, tree = [];
  // By the function's name; the types of its parameters are not what people look for.
  const searched = (frame) => frame.plain || frame.name;
  function matcher(term) {
    if (term.startsWith("module:")) {
      const name = term.slice(7);
      return (frame) => frame.module >= 0 && modules[frame.module].name === name;
    }
    try {
      const expression = new RegExp(term, "i");
      return (frame) => expression.test(searched(frame));
    } catch {  // an unfinished expression is taken as it is written
      return (frame) => searched(frame).toLowerCase().includes(term.toLowerCase());
    }
  }
  let matches = () => false;
  function draw() {
    $("callers").setAttribute("aria-pressed", String(view === VIEW.CALLERS));
    $("table").setAttribute("aria-pressed", String(view === VIEW.FUNCTIONS));
    $("functions").hidden = view !== VIEW.FUNCTIONS;
    $("chart").hidden = view === VIEW.FUNCTIONS;
    $("note").textContent = view === VIEW.FUNCTIONS ? "Callers and callees are those that the graph draws." :
      (view === VIEW.CALLERS ? "Functions by their own samples, callers below them. " : "") + "Frames narrower than a pixel appear when you zoom in (click a frame).";
    $("chart").replaceChildren();
    stripes.clear();
    chart = null;
    if (!samples()) { $("chart").append(element("div", `No ${profile.counted} were recorded.`, "empty")).id = "empty"; return; }
    tree = treeOf(subject.nodes);
    showThreads();
    if (view === VIEW.FUNCTIONS) { showFunctions(); return; }
    const data = view === VIEW.CALLERS ? callersTree() : tree[0];
    chart = flamegraph.default().width(document.body.clientWidth - 40).cellHeight(19).inverted(true).minFrameSize(0.8)
      .transitionDuration(0).resetHeightOnZoom(true).tooltip(tip).setColorMapper(fill).sort((a, b) => b.data.value - a.data.value)
      .getName((d) => d.data.name).setSearchMatch((node) => node.depth > 0 && matches(node.data.frame)).setSearchHandler(showMatches);
    d3.select("#chart").datum(data).call(chart);
    if (searching) search(searching);
    if (thread && view === VIEW.GRAPH) zoomTo((node) => node.depth === 1 && node.data.name === thread);
  }
  function zoomTo(wanted) {
    const found = d3.select("#chart svg").selectAll(".frame").data().find(wanted);
    if (found) chart.zoomTo(found);
  }
  // A match inside another match is not counted twice. Counts come from the data: zooming changes what is drawn only.
  function showMatches(results) {
    const set = new Set(results);
    let sum = 0;
    for (const node of results) {
      let above = node.parent;
      while (above && !set.has(above)) above = above.parent;
      if (!above) sum += node.data.value;
    }
    $("match").textContent = results.length ? `${percent(sum)} of ${profile.value} (${plain(sum)})` : "no match";
    $("match").className = results.length ? "" : "none";
  }
  function search(term) {
    searching = term;
    $("query").value = term;
    keepState();
    matches = term ? matcher(term) : () => false;
    if (view === VIEW.FUNCTIONS) { $("match").textContent = ""; showList(); return; }
    if (!chart) return;
    if (!term) { $("match").textContent = ""; chart.clear(); return; }
    chart.search(term);
  }
  function setView(to) {
    view = to;
    keepState();
    draw();
  }
  function keepState() {
    const state = new URLSearchParams();
    if (searching) state.set("q", searching);
    if (view !== VIEW.GRAPH) state.set("view", view);
    if (profile !== events[0]) state.set("event", profile.event);
    if (subject.name) state.set("process", subject.name);
    if (thread) state.set("thread", thread);
    if (view === VIEW.FUNCTIONS && chosen > 0) state.set("function", frames[chosen].name);
    const text = state.toString();
    if (("#" + text) !== location.hash && (text || location.hash)) history.replaceState(null, "", "#" + text);
  }

  // ---- processes and threads -----------------------------------------------------------------------------------
  function fillSelect(select, options, value) {
    select.replaceChildren(...options.map(([key, text]) => { const option = element("option", text); option.value = key; return option; }));
    select.value = value;
    select.hidden = options.length < 3;  // "all", and one: nothing to choose
  }
  function use(event) {
    if (profile === event) return;
    profile = event;
    ({ totals, modules, frames } = event);
    subjects = [{ name: "", nodes: event.nodes, callers: event.callers, functions: event.functions }, ...event.processes];
    subject = subjects.find((one) => subject && one.name === subject.name) || subjects[0];
    chosen = -1;
    showHeader();
    showLegend();
  }
  function showEvents() {
    fillSelect($("event"), events.map((one) => [one.event, `Event: ${one.event}`]), profile.event);
    $("event").hidden = events.length < 2;
  }
  function showProcesses() {
    fillSelect($("process"), subjects.map((one) => [one.name, one.name ? `${one.name}: ${share(one.samples, totals.samples)}` : "All processes"]), subject.name);
  }
  function showThreads() {
    const threads = tree[0].children.map((node) => [node.name, `${node.name}: ${percent(node.value)}`]);
    if (!threads.some(([name]) => name === thread)) thread = "";
    fillSelect($("thread"), [["", profile.grouped ? "All groups" : "All threads"], ...threads], thread);
    $("thread").hidden ||= view === VIEW.CALLERS;
  }

  // ---- functions, with callers and callees ---------------------------------------------------------------------
  let rows = ROWS, order = 1;  // of subject.functions' entries: 1 self, 2 total
  const inThread = (node) => { while (node.parent && node.parent.parent) node = node.parent; return !thread || node.name === thread; };
  // [frame, self, total] of the subject; of one thread as far as the graph draws it.
  function functionCounts() {
    if (!thread) return subject.functions;
    const counts = new Map();
    for (const node of tree) {
      if (!node.parent || !inThread(node)) continue;
      let above = node.parent;
      while (above && above.id !== node.id) above = above.parent;
      const known = counts.get(node.id) || [node.id, 0, 0];
      counts.set(node.id, [node.id, known[1] + node.self, known[2] + (above ? 0 : node.value)]);
    }
    return [...counts.values()];
  }
  function tableOf(caption, heads, entries, choose) {
    const table = element("table"), head = element("tr"), body = element("tbody");
    if (caption) table.append(element("caption", caption));
    for (const [text, className] of heads) {
      const cell = element("th", undefined, className);
      cell.append(text);
      head.append(cell);
    }
    for (const { id, cells } of entries) {
      const row = element("tr");
      cells.forEach((text, i) => row.append(element("td", text, heads[i][1])));
      if (id > 0) {
        row.title = frames[id].name;
        row.tabIndex = 0;
        row.setAttribute("aria-selected", String(id === chosen));
        row.addEventListener("click", () => choose(id));
        row.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(id); });
      }
      body.append(row);
    }
    const top = element("thead");
    top.append(head);
    table.append(top, body);
    return table;
  }
  function choose(id) {
    chosen = id;
    keepState();
    showFunctions();
  }
  function sorter(text, by) {
    const button = element("button", text);
    button.setAttribute("aria-pressed", String(order === by));
    button.addEventListener("click", () => { order = by; showList(); });
    return button;
  }
  function showList() {
    const wanted = searching ? matches : () => true;
    const found = functionCounts().filter(([id]) => frames[id].kind <= KIND.UNNAMED && wanted(frames[id]))
      .sort((a, b) => b[order] - a[order] || b[3 - order] - a[3 - order]);
    const entries = found.slice(0, rows).map(([id, self, total]) => {
      const module = modules[frames[id].module];
      return { id, cells: [percent(self), percent(total), frames[id].name, module ? module.name : ""] };
    });
    $("list").replaceChildren(tableOf("", [[sorter("self", 1), "number"], [sorter("total", 2), "number"], ["function"], ["module", "module"]], entries, choose));
    if (found.length <= rows) return;
    const more = element("button", `${count(found.length - rows)} more`);
    more.addEventListener("click", () => { rows += 5 * ROWS; showList(); });
    $("list").append(more);
  }
  // Who calls it and whom it calls, in samples of it. Calls of its own to itself are not taken apart.
  function neighbours(id) {
    const callers = new Map(), callees = new Map();
    const add = (to, node, value) => to.set(node.id, (to.get(node.id) || 0) + value);
    let total = 0, self = 0;
    for (const node of tree) {
      if (node.id !== id || !inThread(node)) continue;
      self += node.self;
      for (const child of node.children) if (child.id !== id) add(callees, child, child.value);
      let above = node.parent;
      while (above && above.id !== id) above = above.parent;
      if (above) continue;
      total += node.value;
      if (node.parent) add(callers, node.parent, node.value);
    }
    const sorted = (map) => [...map].sort((a, b) => b[1] - a[1]);
    return { total, self, callers: sorted(callers), callees: sorted(callees) };
  }
  function showFunctions() {
    showList();
    const box = $("function");
    box.replaceChildren();
    if (chosen <= 0) { box.append(element("p", "Choose a function to see who calls it and whom it calls.", "where")); return; }
    const frame = frames[chosen], module = modules[frame.module], { total, self, callers, callees } = neighbours(chosen);
    box.append(element("h2", frame.name));
    if (module) box.append(element("div", module.path, "where"));
    if (frame.file) box.append(element("div", frame.file + (frame.line ? ":" + frame.line : ""), "where"));
    box.append(element("div", `${amount(total)} (${percent(total)}), self ${amount(self)} (${percent(self)})`));
    const heads = [["of it", "number"], [profile.value, "number"], ["function"]];
    const cells = ([id, n]) => ({ id: frames[id].kind <= KIND.UNNAMED ? id : -1, cells: [share(n, total), plain(n), id ? frames[id].name : "(none)"] });
    box.append(tableOf("Callers", heads, callers.map(cells), choose), tableOf("Callees", heads, callees.map(cells), choose));
    if (frame.lines) {
      const lines = frame.lines.map(([line, n]) => ({ id: -1, cells: [share(n, frame.self), plain(n), `${frame.file}:${line}`] }));
      box.append(tableOf(`Source lines, by ${profile.value} of its own in the whole profile`, [["of self", "number"], [profile.value, "number"], ["line"]], lines, choose));
    }
  }

  // ---- the legend ----------------------------------------------------------------------------------------------
  function showLegend() {
    const legend = $("legend");
    legend.replaceChildren();
    const shown = modules.filter((module) => module.self > 0).slice(0, 14);
    for (const module of shown) {
      const entry = element("button");
      const colour = element("i");
      colour.style.background = moduleColour(module);
      entry.append(colour, module.name, element("span", share(module.self, totals.samples)));
      entry.title = module.path + ": " + profile.value + " in its own code";
      entry.addEventListener("click", () => search(searching === "module:" + module.name ? "" : "module:" + module.name));
      legend.append(entry);
    }
    if (totals.truncated) {
      const entry = element("button");
      const colour = element("i");
      colour.style.background = "repeating-linear-gradient(45deg, #e5735f 0 3px, #fff8 3px 6px)";
      entry.append(colour, "truncated stacks", element("span", share(totals.truncated, totals.samples)));
      entry.addEventListener("click", () => search(searching === "\\[truncated" ? "" : "\\[truncated"));
      legend.append(entry);
    }
  }

  // ---- input ---------------------------------------------------------------------------------------------------
  let typing = 0;
  $("query").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => search($("query").value), 150); });
  const toggle = (to) => setView(view === to ? VIEW.GRAPH : to);
  $("callers").addEventListener("click", () => toggle(VIEW.CALLERS));
  $("table").addEventListener("click", () => toggle(VIEW.FUNCTIONS));
  $("event").addEventListener("change", () => {
    use(events.find((one) => one.event === $("event").value));
    showProcesses();
    setView(view);
  });
  $("process").addEventListener("change", () => {
    subject = subjects.find((one) => one.name === $("process").value) || subjects[0];
    thread = "";
    setView(view);
  });
  $("thread").addEventListener("change", () => { thread = $("thread").value; setView(view); });
  $("reset").addEventListener("click", () => chart && chart.resetZoom());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      search("");
      $("query").blur();
      if (chart) chart.resetZoom();
    } else if (!event.target.matches("input, select") && !event.ctrlKey && !event.metaKey && !event.altKey) {
      if (event.key === "/") { event.preventDefault(); $("query").focus(); $("query").select(); }
      if (event.key === "c") toggle(VIEW.CALLERS);
      if (event.key === "f") toggle(VIEW.FUNCTIONS);
    }
  });
  let resizing = 0;
  window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(draw, 150); });
  dark.addEventListener("change", () => { showLegend(); draw(); });
  function fromHash() {
    const state = new URLSearchParams(location.hash.slice(1));
    use(events.find((one) => one.event === state.get("event")) || events[0]);
    view = Object.values(VIEW).includes(state.get("view")) ? state.get("view") : VIEW.GRAPH;
    searching = state.get("q") || "";
    subject = subjects.find((one) => one.name === state.get("process")) || subjects[0];
    thread = state.get("thread") || "";
    chosen = state.has("function") ? frames.findIndex((frame) => frame.name === state.get("function")) : -1;
    matches = searching ? matcher(searching) : () => false;
    $("query").value = searching;
    showEvents();
    showProcesses();
    draw();
    if (!searching) search("");
  }
  window.addEventListener("hashchange", fromHash);

  fromHash();
})();
