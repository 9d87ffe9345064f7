// Checks manifests, as JSON, against Kubernetes' schemas as the package kubernetes-models has them compiled. The schemas
// allow unknown fields, so each field must also be one that some schema of its kind names.
// usage: node check_kubernetes.mjs MANIFESTS.json
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const SCHEMAS = { "v1/Namespace": "CoreV1Namespace", "v1/ServiceAccount": "CoreV1ServiceAccount", "v1/ConfigMap": "CoreV1ConfigMap", "apps/v1/DaemonSet": "AppsV1DaemonSet" };
const FREE = new Set(["labels", "annotations", "matchLabels", "nodeSelector", "data", "requests", "limits"]);  // any keys
const modules = resolve(dirname(fileURLToPath(import.meta.url)), "node_modules");
let wrong = 0;
const say = (text) => { console.log(`wrong: ${text}`); ++wrong; };

// All fields that a schema, and those that it stands on, name.
function fieldsOf(file, seen = new Set(), fields = new Set()) {
  if (seen.has(file)) return fields;
  seen.add(file);
  const text = readFileSync(file, "utf8");
  for (const [, name] of text.matchAll(/\bdata\.([A-Za-z$]\w*)/g)) fields.add(name);
  for (const [, from] of text.matchAll(/from"([^"]*IoK8s[^"]*)"/g)) {
    const path = from.startsWith(".") ? resolve(dirname(file), from) : `${modules}/${from}`;
    fieldsOf(path.endsWith(".js") ? path : `${path}.js`, seen, fields);
  }
  return fields;
}
function checkFields(value, fields, at) {
  if (Array.isArray(value)) return value.forEach((one, i) => checkFields(one, fields, `${at}/${i}`));
  if (value === null || typeof value !== "object") return undefined;
  for (const [name, member] of Object.entries(value)) {
    if (!fields.has(name)) say(`${at}/${name}: no field of this kind`);
    if (!FREE.has(name)) checkFields(member, fields, `${at}/${name}`);
  }
  return undefined;
}
for (const document of JSON.parse(readFileSync(process.argv[2], "utf8"))) {
  const kind = `${document.apiVersion}/${document.kind}`;
  if (!SCHEMAS[kind]) {
    say(`${kind}: no schema of this kind`);
    continue;
  }
  const file = `${modules}/kubernetes-models/_schemas/IoK8sApi${SCHEMAS[kind]}.js`;
  const { validate } = await import(file);
  if (!validate(document)) for (const { instancePath, message, keyword, params } of validate.errors) say(`${kind}${instancePath}: ${message || keyword} ${JSON.stringify(params)}`);
  checkFields(document, fieldsOf(file), kind);
}
process.exit(wrong ? 1 : 0);
