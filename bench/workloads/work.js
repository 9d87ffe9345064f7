// CPU-bound JavaScript: JSON, regular expressions, maps, typed arrays, closures.
const end = Date.now() + 1000 * Number(process.argv[2]);
const descend = (n) => (n ? 1 + descend(n - 1) : 0);
let rounds = 0;
while (Date.now() < end) {
  const rows = Array.from({ length: 2000 }, (_, i) => ({ name: `row-${i}`, values: [...Array(i % 30).keys()] }));
  const text = JSON.stringify(rows);
  const back = JSON.parse(text).sort((a, b) => a.values.length - b.values.length || a.name.localeCompare(b.name));
  const counts = new Map();
  for (const m of text.matchAll(/(\w+)-(\d+)/g)) counts.set(m[1], (counts.get(m[1]) || 0) + Number(m[2]));
  const floats = new Float64Array(20000).map((_, i) => Math.sin(i) * back.length);
  floats.sort();
  descend(300);
  rounds++;
}
console.log(rounds, 'rounds');
