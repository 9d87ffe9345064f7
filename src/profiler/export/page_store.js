"use strict";
// The page of `windlass serve`: a value of a label, a range of time, and perhaps a second range to compare with. The
// address has each choice. The server answers with the data of the page below, which is the page of a profile.
const SECOND = 1000, HOUR = 3600 * SECOND, BAR = 4, MOST_VALUES = 200;  // BAR: pixels
// Whole intervals of ten seconds, where there is room.
const STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400].map((s) => s * SECOND);
const MARKS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800].map((s) => s * SECOND);
const NUMBERS = ["begin", "end", "from", "to", "before_from", "before_to"];  // in ms of Unix time; 0: not chosen
// `begin` to `end` is shown; `from` to `to` is chosen of it. `before_label`: what is compared has a label of its own, and
// with `before_value` a value.
let picked = {}, storeFacts = null, seriesList = [], seriesBegin = 0, totalList = [], dragsBefore = false;
const askedKeys = {}, requests = {};

// ---- the address ---------------------------------------------------------------------------------------------------
function pickedOf(search) {
  const from = new URLSearchParams(search), read = { label: from.get("label") || "process", value: from.get("value"), event: from.get("event") || "" };
  Object.assign(read, { before_label: from.get("before_label"), before_value: from.get("before_value") });
  if (read.before_value !== null) read.before_label = read.before_label || read.label;
  for (const name of NUMBERS) {
    const number = Math.round(Number(from.get(name)));
    read[name] = number > 0 && number < 1e14 ? number : 0;
  }
  return read;
}
function searchOf() {
  const to = new URLSearchParams({ label: picked.label });
  for (const name of ["value", "before_label", "before_value"]) if (picked[name] !== null) to.set(name, picked[name]);
  for (const name of NUMBERS) if (picked[name]) to.set(name, picked[name]);
  if (picked.event) to.set("event", picked.event);
  return "?" + to;
}
function pick(changes, replace) {
  Object.assign(picked, changes);
  const search = searchOf();
  if (search !== location.search) {
    state.zoom = "";  // a box of other data
    const hash = names ? addressOf() : location.hash.slice(1);
    history[replace ? "replaceState" : "pushState"](null, "", search + (hash ? "#" + hash : ""));
  }
  refreshStore();
}
const compares = () => picked.before_to > picked.before_from;
// What the list of values and the time line show: the side that is moved.
const showsBefore = () => dragsBefore && compares();
const sideOf = (before) => before && picked.before_label !== null ? { label: picked.before_label, value: picked.before_value } : { label: picked.label, value: picked.value };
const shownSide = () => sideOf(showsBefore());
const sideRange = () => showsBefore() ? [picked.before_from, picked.before_to] : chosenRange();
// `before` differs from the chosen value from here on, if it was the same.
const pickSide = (side) => pick(showsBefore() ? { before_label: side.label, before_value: side.value } : side);
const chosenRange = () => picked.to > picked.from ? [picked.from, picked.to] : [picked.begin, picked.end];

// ---- questions -----------------------------------------------------------------------------------------------------
function tell(text, isBad) {
  $("told").textContent = text;
  $("told").className = isBad ? "warning" : "";
}
function endRequest(kind) {
  delete requests[kind];
  if (kind === "page") $("chart").classList.remove("waiting");
}
// Undefined: a newer question has come, or it failed, which is said.
async function askStore(kind, question) {
  if (requests[kind]) requests[kind].abort();
  const request = requests[kind] = new AbortController();
  if (kind === "page") $("chart").classList.add("waiting");
  try {
    const answered = await fetch(`api/${kind}?${new URLSearchParams(question)}`, { signal: request.signal });
    const text = await answered.text();
    endRequest(kind);
    if (answered.ok) return kind === "page" ? text : JSON.parse(text);
    if (answered.status === 401) $("token").hidden = false;
    throw new Error(text.startsWith("{") ? JSON.parse(text).error : text);
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    endRequest(kind);
    delete askedKeys[kind];
    tell(error.message, true);
    if (kind === "page") {
      $("chart").hidden = false;
      $("functions").hidden = true;
      say(error.message);
    }
    return undefined;
  }
}
// Only if the question differs from the last one.
async function askOnce(kind, question, take) {
  const key = JSON.stringify(question);
  if (askedKeys[kind] === key) return;
  askedKeys[kind] = key;
  const answered = await askStore(kind, question);
  if (answered !== undefined) take(answered);
}
const questionOf = (from, to, side) => ({ from, to, label: side.label, ...(side.value === null ? {} : { value: side.value }) });
function beforeQuestion() {
  if (!compares()) return {};
  const { label, value } = sideOf(true), times = { before_from: picked.before_from, before_to: picked.before_to };
  return picked.before_label === null ? times : { ...times, before_label: label, ...(value === null ? {} : { before_value: value }) };
}
function refreshStore() {
  showPicked();
  if (!storeFacts || !storeFacts.end) return;
  const [from, to] = chosenRange(), least = (picked.end - picked.begin) / Math.max(10, $("line").clientWidth / BAR);
  // A sample counts at the begin of its interval: a step that is no multiple of the interval has one more, or none.
  const interval = Math.max(1, Math.round(storeFacts.interval / SECOND)) * SECOND, unit = 24 * HOUR % interval ? interval : 24 * HOUR;
  const step = STEPS.find((one) => one >= least && one % interval === 0) || Math.ceil(least / unit) * unit;
  // Whole steps: the store keeps sums of ten minutes and of hours.
  seriesBegin = Math.floor(picked.begin / step) * step;
  askOnce("series", { ...questionOf(seriesBegin, picked.end, shownSide()), step }, (answered) => { seriesList = answered.series; showSeries(); askTotals(); });
  askOnce("page", { ...questionOf(from, to, sideOf(false)), ...beforeQuestion() }, (data) => takeProfile(data));
  askTotals();
}
function askTotals() {
  const [from, to] = sideRange(), series = shownSeries();
  if (series || seriesList.length === 0) askOnce("values", { label: shownSide().label, from, to, event: series ? series.event : "cpu" }, (answered) => { totalList = answered.values; showValues(); });
}
async function showWindow(hours) {
  const facts = await askStore("labels", {});
  if (!facts) return;
  storeFacts = facts;
  const begin = hours ? Math.max(storeFacts.begin, storeFacts.end - hours * HOUR) : storeFacts.begin;
  pick({ begin, end: storeFacts.end, from: 0, to: 0, before_from: 0, before_to: 0, before_label: null, before_value: null });
}

// ---- text ----------------------------------------------------------------------------------------------------------
// Names are anybody's: characters that are not seen, or turn text around, are shown.
const visible = (text) => text.replace(/[\p{Cc}\p{Cf}]/gu, "\uFFFD");
const localTime = (ms) => new Date(ms - new Date(ms).getTimezoneOffset() * 60 * SECOND).toISOString().slice(0, 19);
const stamp = (ms) => localTime(ms).replace("T", " ");
const ofUnit = (series, sums) => series.unit === "count" ? sums.map(([n]) => n) : sums.map(([, n]) => n);
function mostText(series, most) {
  if (series.unit !== "nanoseconds") return `at most ${count(most)} ${series.unit === "count" ? series.counted : series.unit} in ${series.step / SECOND} s`;
  const rate = (most / series.step / 1e6).toPrecision(2);
  return series.event === "cpu" ? `at most ${Number(rate)} CPUs` : `at most ${Number(rate)} s a second`;
}

// ---- values of the label -------------------------------------------------------------------------------------------
function valueEntry(value, text, part) {
  const item = element("li"), button = element("button");
  button.append(element("span", visible(text), "name"), element("span", part, "share"));
  button.title = visible(text);
  button.setAttribute("aria-pressed", String(shownSide().value === value));
  button.addEventListener("click", () => pickSide({ label: shownSide().label, value }));
  item.append(button);
  return item;
}
function showValues() {
  const wanted = $("findValue").value.toLowerCase(), all = totalList.reduce((sum, one) => sum + one.amount, 0);
  const found = totalList.filter((one) => one.value.toLowerCase().includes(wanted));
  const shown = found.slice(0, MOST_VALUES), value = shownSide().value, isPicked = (one) => one.value === value;
  // The chosen one is there in any case.
  if (value !== null && !wanted && !shown.some(isPicked)) shown.unshift(totalList.find(isPicked) || { value, amount: 0 });
  const entries = shown.map((one) => valueEntry(one.value, one.value, share(one.amount, all)));
  if (!wanted) entries.unshift(valueEntry(null, "All", ""));
  $("values").replaceChildren(...entries);
  const left = found.length - MOST_VALUES;
  $("moreValues").textContent = left > 0 ? `${count(left)} more: find them by a part of the name.` : `${count(found.length)} in this time`;
}

// ---- the time line -------------------------------------------------------------------------------------------------
function shownSeries() {
  return seriesList.find((one) => one.event === picked.event) || seriesList.find((one) => one.event === "cpu") || seriesList[0];
}
function showSeries() {
  const series = shownSeries(), events = seriesList.map((one) => [one.event, visible(one.event)]);
  fillSelect($("seriesEvent"), events, series ? series.event : "", 2);
  const sums = series ? ofUnit(series, series.sums) : [], most = Math.max(0, ...sums);
  $("most").textContent = series ? mostText(series, most) : "no samples";
  // The first step may begin before the time line, and the last one reach behind it.
  const percent = (ms) => `${100 * ms / (picked.end - picked.begin)}%`;
  $("bars").style.width = series ? percent(sums.length * series.step) : "";
  $("bars").style.marginLeft = series ? percent(seriesBegin - picked.begin) : "";
  drawBars($("bars"), sums, Math.max(most, 1e-9), getComputedStyle(document.documentElement).getPropertyValue("--accent"));
}
function showLineAxis() {
  const span = picked.end - picked.begin, wanted = span * 70 / Math.max(70, $("lineAxis").clientWidth), marks = [];
  const step = MARKS.find((one) => one >= wanted) || Math.ceil(wanted / MARKS[MARKS.length - 1]) * MARKS[MARKS.length - 1];
  const zone = new Date(picked.begin).getTimezoneOffset() * 60 * SECOND;
  for (let at = Math.ceil((picked.begin - zone) / step) * step + zone; at < picked.end - span * 0.03; at += step) {
    const text = localTime(at), mark = element("span", step >= 24 * HOUR ? text.slice(5, 10) : text.slice(11, step < 60 * SECOND ? 19 : 16));
    mark.style.left = `${100 * (at - picked.begin) / span}%`;
    marks.push(mark);
  }
  $("lineAxis").replaceChildren(...marks);
}
function rangeBox(from, to, className, text) {
  const box = element("div", undefined, className), span = picked.end - picked.begin;
  if (text) box.append(element("span", text));
  box.style.left = `${100 * (from - picked.begin) / span}%`;
  box.style.width = `${100 * (to - from) / span}%`;
  return box;
}
function showBrush(extra) {
  const boxes = [], now = { ...picked, ...extra };
  if (now.to > now.from) boxes.push(rangeBox(now.from, now.to, "after", compares() ? "after" : ""));
  if (now.before_to > now.before_from) boxes.push(rangeBox(now.before_from, now.before_to, "before", "before"));
  $("lineBrush").replaceChildren(...boxes);
}
function showPicked() {
  if (!storeFacts) return;
  fillSelect($("byLabel"), storeFacts.labels.map((one) => [one, visible(one)]), shownSide().label, 1);
  const [from, to] = chosenRange();
  $("compare").setAttribute("aria-pressed", String(compares()));
  $("beforeTimes").hidden = $("dragAfter").hidden = !compares();
  $("dragBefore").setAttribute("aria-pressed", String(dragsBefore));
  $("dragAfter").setAttribute("aria-pressed", String(!dragsBefore));
  $("zoomTime").disabled = picked.to <= picked.from;
  for (const [id, at] of [["afterFrom", from], ["afterTo", to], ["beforeFrom", picked.before_from], ["beforeTo", picked.before_to]]) $(id).value = localTime(at);
  showBrush({});
  showLineAxis();
  showValues();
  const text = ({ label, value }) => value === null ? "All" : `${visible(label)} ${visible(value)}`, of = text(sideOf(false));
  const other = picked.before_label === null ? "" : `${text(sideOf(true))}, `;
  const than = compares() ? `, compared with ${other}${stamp(picked.before_from)} to ${stamp(picked.before_to)}` : "";
  $("leftOut").textContent = storeFacts.left_out.length ? `Not shown: ${storeFacts.left_out.join("; ")}` : "";
  $("sameTime").hidden = !compares();
  if (!storeFacts.end) tell(`${storeFacts.store} has no samples yet.`, true);
  else tell(`${of}, ${stamp(from)} to ${stamp(to)}${than}.`, false);
}

// ---- input ---------------------------------------------------------------------------------------------------------
const dragged = (from, to) => dragsBefore && compares() ? { before_from: from, before_to: to } : { from, to };
function movePicked(by, end) {
  const before = dragsBefore && compares(), [from, to] = before ? [picked.before_from, picked.before_to] : picked.to > picked.from ? [picked.from, picked.to] : [0, 0];
  const length = to > from ? to - from : Math.round((picked.end - picked.begin) / 10), step = by * Math.max(SECOND, Math.round(length / 10));
  if (to <= from) pick(dragged(picked.begin, picked.begin + length));
  else if (end) pick(dragged(from, Math.max(from + SECOND, to + step)));
  else pick(dragged(from + step, to + step));
}
function watchLine() {
  const brush = $("lineBrush");
  let begin = -1;
  const at = (event) => {
    const { left, width } = brush.getBoundingClientRect();
    return Math.round(picked.begin + Math.max(0, Math.min(1, (event.clientX - left) / width)) * (picked.end - picked.begin));
  };
  const range = (event) => [Math.min(begin, at(event)), Math.max(begin, at(event))];
  brush.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !storeFacts) return;
    begin = at(event);
    brush.setPointerCapture(event.pointerId);
  });
  brush.addEventListener("pointermove", (event) => { if (begin >= 0) showBrush(dragged(...range(event))); });
  brush.addEventListener("pointerup", (event) => {
    if (begin < 0) return;
    const [from, to] = range(event), moved = (to - from) / (picked.end - picked.begin) * brush.clientWidth;
    begin = -1;
    if (moved > 3) pick(dragged(from, to));
    else if (!compares()) pick({ from: 0, to: 0 });
    else showBrush({});
  });
  brush.addEventListener("pointercancel", () => { begin = -1; showBrush({}); });
  brush.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !storeFacts || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    movePicked(by, event.shiftKey);
  });
}
// The range before the chosen one; without one, the first half is compared with the second.
function toggleCompare() {
  if (compares()) return pick({ before_from: 0, before_to: 0, before_label: null, before_value: null });
  const [from, to] = chosenRange(), middle = Math.round((from + to) / 2);
  dragsBefore = true;
  if (picked.to > picked.from) return pick({ before_from: 2 * from - to, before_to: from });
  return pick({ from: middle, to, before_from: from, before_to: middle });
}
function pickExact() {
  const read = (id) => new Date($(id).value).getTime() || 0, from = read("afterFrom"), to = read("afterTo");
  const before = compares() ? { before_from: read("beforeFrom"), before_to: read("beforeTo") } : {};
  if (to <= from || (compares() && before.before_to <= before.before_from)) return tell("A range ends behind its beginning.", true);
  return pick({ from, to, ...before });
}
async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    $("shared").textContent = "copied";
  } catch {  // without https there is no clipboard
    $("shared").textContent = "Copy the address of this page: it has every choice.";
  }
}
for (const button of document.querySelectorAll("#store [data-hours]")) button.addEventListener("click", () => showWindow(Number(button.dataset.hours)));
$("byLabel").addEventListener("change", () => { totalList = []; pickSide({ label: $("byLabel").value, value: null }); });
$("findValue").addEventListener("input", showValues);
$("seriesEvent").addEventListener("change", () => { pick({ event: $("seriesEvent").value }); showSeries(); });
$("zoomTime").addEventListener("click", () => pick({ begin: picked.from, end: picked.to, from: 0, to: 0 }));
$("compare").addEventListener("click", toggleCompare);
$("share").addEventListener("click", copyLink);
$("dragBefore").addEventListener("click", () => { dragsBefore = true; refreshStore(); });
$("dragAfter").addEventListener("click", () => { dragsBefore = false; refreshStore(); });
$("sameTime").addEventListener("click", () => { const [from, to] = chosenRange(); pick({ from, to, before_from: from, before_to: to }); });
for (const id of ["afterFrom", "afterTo", "beforeFrom", "beforeTo"]) $(id).addEventListener("change", pickExact);
$("token").addEventListener("submit", (event) => {
  event.preventDefault();
  const to = new URLSearchParams(location.search);
  to.set("token", $("tokenText").value);
  location.search = "?" + to;
});
window.addEventListener("popstate", () => { picked = { ...picked, ...pickedOf(location.search) }; refreshStore(); });
window.addEventListener("resize", () => { if (storeFacts) { showSeries(); showLineAxis(); } });
new MutationObserver(() => { if (storeFacts) showSeries(); }).observe(document.documentElement, { attributeFilter: ["data-theme"] });

async function beginStore() {
  picked = pickedOf(location.search);
  storeFacts = await askStore("labels", {}) || null;
  if (!storeFacts) return;
  document.title = `Windlass: ${visible(storeFacts.store)}`;
  const begin = picked.begin || Math.max(storeFacts.begin, storeFacts.end - HOUR);
  pick(picked.end > begin ? { begin } : { begin, end: storeFacts.end }, true);
  if (!storeFacts.end) say("No samples yet.");
}
watchLine();
beginStore();
