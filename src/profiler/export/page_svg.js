// The flame graph as it is shown, as one SVG file. Names enter as text nodes and attributes of a document, which is then
// serialised: nothing of them can become markup.
const SVG = "http://www.w3.org/2000/svg", SVG_TOP = 44;
const forXml = (text) => text.replace(/[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, "\uFFFD");
function svgText() {
  const page = getComputedStyle(document.body), width = chartWidth(), rows = Math.max(...drawn.boxes.map((box) => box.depth)) + 1;
  const file = document.implementation.createDocument(SVG, "svg"), height = SVG_TOP + rows * ROW + 8;
  const put = (to, tag, attributes, text) => {
    const made = file.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, forXml(String(value)));
    if (text !== undefined) made.textContent = forXml(text);
    to.append(made);
    return made;
  };
  const root = file.documentElement;
  for (const [name, value] of Object.entries({ width: width + 20, height, viewBox: `0 0 ${width + 20} ${height}` })) root.setAttribute(name, value);
  put(root, "rect", { width: "100%", height: "100%", fill: page.backgroundColor });
  const hatch = put(put(root, "defs", {}), "pattern", { id: "hatch", width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  put(hatch, "rect", { width: 3, height: 8, fill: "#fff", "fill-opacity": 0.55 });
  put(root, "text", { x: 10, y: 19, fill: page.color, "font-family": "system-ui, sans-serif", "font-size": 14, "font-weight": 600 }, document.querySelector("h1").textContent);
  const facts = [...$("facts").children].map((one) => `${one.children[1].textContent} ${one.children[0].textContent}`);
  put(root, "text", { x: 10, y: 36, fill: page.color, "font-family": "system-ui, sans-serif", "font-size": 11 }, facts.join(", "));
  const boxes = put(root, "g", { transform: `translate(10 ${SVG_TOP})`, "font-family": "ui-monospace, 'DejaVu Sans Mono', monospace", "font-size": 12 });
  for (const box of drawn.boxes) {
    const { element } = box, style = getComputedStyle(element), place = { x: parseFloat(element.style.left), y: box.depth * ROW };
    const size = { width: Math.max(0.3, parseFloat(element.style.width) - 1), height: ROW - 1, rx: 2 }, made = put(boxes, "g", box.above ? { opacity: 0.6 } : {});
    put(made, "title", {}, svgTitle(box));
    const border = box.differs && (box.a === 0 || box.b === 0) ? { stroke: style.borderTopColor, "stroke-width": 1.5, "stroke-dasharray": box.b === 0 ? "4 2" : "none" } : {};
    put(made, "rect", { ...place, ...size, ...border, fill: style.backgroundColor });
    if (box.truncated) put(made, "rect", { ...place, ...size, fill: "url(#hatch)" });
    if (element.textContent) put(made, "text", { x: place.x + 4, y: place.y + 13, fill: style.color }, element.textContent);
  }
  return '<?xml version="1.0" encoding="UTF-8"?>\n' + new XMLSerializer().serializeToString(file) + "\n";
}
function svgTitle(box) {
  const name = box.frame === NARROWER ? `${count(box.functions)} narrower functions` : nameOf(box.frame);
  if (names.diff) return box.a === undefined ? name : `${name}\n${ofSide(box.a, 0)} before, ${ofSide(box.b, 1)} after`;
  return `${name}\n${weightOf(box)}`;
}
function saveSvg() {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([svgText()], { type: "image/svg+xml" }));
  link.download = "flame-graph.svg";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
