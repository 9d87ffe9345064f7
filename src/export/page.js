"use strict";
(() => {
  const profile = JSON.parse(document.getElementById("profile").textContent);
  const { totals, modules, frames, nodes } = profile;
  const KIND = { FUNCTION: 0, UNNAMED: 1, COMM: 2, TRUNCATED: 3 };
  const CALLERS_SHARE = 0.0002;  // branches of the callers' view below this share are not drawn
  const $ = (id) => document.getElementById(id);
  const count = (n) => n.toLocaleString("en-US");
  const percent = (n) => (100 * n / totals.samples).toFixed(2) + "%";
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
    const title = document.querySelector("h1");
    title.textContent = "Windlass profile ";
    if (totals.start_unix_ms) title.append(element("small", new Date(totals.start_unix_ms).toISOString().replace("T", " ").slice(0, 19) + " UTC"));
    const whole = totals.samples - totals.truncated;
    fact("samples", count(totals.samples));
    // Rounded down: 100% only if every stack is whole.
    const share = totals.samples ? Math.floor(10000 * whole / totals.samples) / 100 : 0;
    fact("stacks complete", share.toFixed(2) + "%", whole === totals.samples ? "good" : "bad");
    fact("truncated", count(totals.truncated), totals.truncated ? "bad" : "");
    fact("lost", count(totals.lost), totals.lost ? "bad" : "");
    if (totals.hz) fact("frequency", totals.hz + " Hz");
    if (totals.seconds) fact("duration", totals.seconds.toFixed(1) + " s");
    if (totals.cpu_seconds) fact("CPU time", totals.cpu_seconds.toFixed(1) + " s");
    const notes = profile.comments.slice();
    for (const [reason, n] of profile.ends) notes.push(`Truncated (${reason}): ${count(n)} samples, ${percent(n)}; hatched in the graph.`);
    if (profile.left_out.nodes)
      notes.push(`${count(profile.left_out.nodes)} frames with fewer than ${count(profile.left_out.below)} samples (${percent(profile.left_out.below)}) ` +
                 "are too narrow to draw and left out, also of search; the counts of their callers include them.");
    for (const text of notes) $("notes").append(element("li", text));
  }

  // ---- colours -------------------------------------------------------------------------------------------------
  // Hues well apart for the modules that matter most; the rest by a hash of the name. The kernel has its own.
  const HUES = [212, 145, 42, 268, 178, 322, 88, 235, 24, 195, 290, 62];
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const hash = (text) => { let h = 7; for (let i = 0; i < text.length; i++) h = (h * 31 + text.charCodeAt(i)) >>> 0; return h; };
  modules.forEach((module, i) => {
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
  // nodes: parallel arrays in preorder; up[i] says how many entries before i its parent stands.
  function callTree() {
    const all = [];
    for (let i = 0; i < nodes.frame.length; i++) {
      const frame = frames[nodes.frame[i]];
      const parent = i ? all[i - nodes.up[i]] : null;
      const made = { frame, name: frame.name, value: nodes.total[i], self: nodes.self[i], children: [], parent,
                     truncated: frame.kind === KIND.TRUNCATED || (parent !== null && parent.truncated) };
      if (parent) parent.children.push(made);
      all.push(made);
    }
    return all;
  }
  // Leaves first: every node of the call tree that has samples of its own starts a path to its root; equal starts merge.
  function callersTree() {
    const least = Math.max(1, totals.samples * CALLERS_SHARE);
    const group = (frame, ends, value) => ({ frame, name: frame.name, value, self: 0, ends, children: [], truncated: frame.kind === KIND.TRUNCATED });
    const root = group(tree[0].frame, tree.filter((n) => n.self > 0 && n.parent).map((n) => [n, n.self]), totals.samples);
    const todo = [root];
    while (todo.length) {
      const at = todo.pop();
      const by = new Map();
      for (const [node, weight] of at.ends) {
        const next = at === root ? node : node.parent;
        if (!next || !next.parent) continue;
        const known = by.get(next.frame);
        if (known) { known.ends.push([next, weight]); known.value += weight; } else by.set(next.frame, group(next.frame, [[next, weight]], weight));
      }
      at.ends = null;
      at.children = [...by.values()].filter((child) => child.value >= least).sort((a, b) => b.value - a.value);
      for (const child of at.children) {
        if (at === root) child.self = child.value;
        todo.push(child);
      }
    }
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
    box.append(element("div", `${count(value)} samples (${percent(value)})` +
      (showsCallers ? "" : `, self ${count(self)} (${percent(self)})`), "counts"));
    const everywhere = frame.total !== undefined && frame.kind <= KIND.UNNAMED;
    if (everywhere) box.append(element("div", `everywhere: self ${percent(frame.self)}, total ${percent(frame.total)}`, "counts where"));
    if (node.data.truncated) box.append(element("div", "This stack is truncated: its outer callers are not known.", "warning"));
    box.style.display = "block";
    const { width, height } = box.getBoundingClientRect();
    box.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
    box.style.top = (event.clientY + 18 + height > innerHeight ? Math.max(4, event.clientY - height - 10) : event.clientY + 18) + "px";
    return tip;
  };
  tip.hide = () => { $("tip").style.display = "none"; return tip; };
  tip.destroy = () => {};

  let searching = "", showsCallers = false, chart = null, tree = [];
  function matcher(term) {
    if (term.startsWith("module:")) {
      const name = term.slice(7);
      return (node) => node.data.frame.module >= 0 && modules[node.data.frame.module].name === name;
    }
    try {
      const expression = new RegExp(term, "i");
      return (node) => node.depth > 0 && expression.test(node.data.name);
    } catch {  // an unfinished expression is taken as it is written
      return (node) => node.depth > 0 && node.data.name.toLowerCase().includes(term.toLowerCase());
    }
  }
  let matches = () => false;
  function draw() {
    $("callers").setAttribute("aria-pressed", String(showsCallers));
    $("note").textContent = (showsCallers ? `Functions by their own samples, callers below them; branches under ${100 * CALLERS_SHARE}% are left out. ` : "") +
      "Frames narrower than a pixel appear when you zoom in (click a frame).";
    $("chart").replaceChildren();
    stripes.clear();
    if (!totals.samples) { $("chart").append(element("div", "No samples were recorded.", "empty")).id = "empty"; return; }
    tree = callTree();
    const data = showsCallers ? callersTree() : tree[0];
    chart = flamegraph.default().width(document.body.clientWidth - 40).cellHeight(19).inverted(true).minFrameSize(0.8)
      .transitionDuration(0).resetHeightOnZoom(true).tooltip(tip).setColorMapper(fill).sort((a, b) => b.data.value - a.data.value)
      .getName((d) => d.data.name).setSearchMatch((node) => matches(node)).setSearchHandler(showMatches);
    d3.select("#chart").datum(data).call(chart);
    if (searching) search(searching);
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
    $("match").textContent = results.length ? `${percent(sum)} of samples (${count(sum)})` : "no match";
    $("match").className = results.length ? "" : "none";
  }
  function search(term) {
    searching = term;
    $("query").value = term;
    keepState();
    if (!chart) return;
    if (!term) { matches = () => false; $("match").textContent = ""; chart.clear(); return; }
    matches = matcher(term);
    chart.search(term);
  }
  function setCallers(on) {
    showsCallers = on;
    keepState();
    draw();
  }
  function keepState() {
    const state = new URLSearchParams();
    if (searching) state.set("q", searching);
    if (showsCallers) state.set("view", "callers");
    const text = state.toString();
    if (("#" + text) !== location.hash && (text || location.hash)) history.replaceState(null, "", "#" + text);
  }

  function showLegend() {
    const legend = $("legend");
    legend.replaceChildren();
    const shown = modules.filter((module) => module.self > 0).slice(0, 14);
    for (const module of shown) {
      const entry = element("button");
      const colour = element("i");
      colour.style.background = moduleColour(module);
      entry.append(colour, module.name, element("span", percent(module.self)));
      entry.title = module.path + ": samples in its own code";
      entry.addEventListener("click", () => search(searching === "module:" + module.name ? "" : "module:" + module.name));
      legend.append(entry);
    }
    if (totals.truncated) {
      const entry = element("button");
      const colour = element("i");
      colour.style.background = "repeating-linear-gradient(45deg, #e5735f 0 3px, #fff8 3px 6px)";
      entry.append(colour, "truncated stacks", element("span", percent(totals.truncated)));
      entry.addEventListener("click", () => search(searching === "\\[truncated" ? "" : "\\[truncated"));
      legend.append(entry);
    }
  }

  // ---- input ---------------------------------------------------------------------------------------------------
  let typing = 0;
  $("query").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(() => search($("query").value), 150); });
  $("callers").addEventListener("click", () => setCallers(!showsCallers));
  $("reset").addEventListener("click", () => chart && chart.resetZoom());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      search("");
      $("query").blur();
      if (chart) chart.resetZoom();
    } else if (event.target !== $("query") && !event.ctrlKey && !event.metaKey && !event.altKey) {
      if (event.key === "/") { event.preventDefault(); $("query").focus(); $("query").select(); }
      if (event.key === "c") setCallers(!showsCallers);
    }
  });
  let resizing = 0;
  window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(draw, 150); });
  dark.addEventListener("change", () => { showLegend(); draw(); });
  function fromHash() {
    const state = new URLSearchParams(location.hash.slice(1));
    showsCallers = state.get("view") === "callers";
    searching = state.get("q") || "";
    draw();
    if (!searching) search("");
  }
  window.addEventListener("hashchange", fromHash);

  showHeader();
  showLegend();
  fromHash();
})();
