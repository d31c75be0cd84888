// Extracts the part of GitHub's OpenAPI description that cowhand uses, and writes it to the file that the argument
// names. Prism takes half a minute to read the whole description. With the part, it also refuses requests to all other
// endpoints.
import { readFileSync, writeFileSync } from "node:fs";

const USED = {
  "/user": ["get"],
  "/repos/{owner}/{repo}": ["get"],
  "/repos/{owner}/{repo}/collaborators/{username}/permission": ["get"],
  "/repos/{owner}/{repo}/issues": ["get", "post"],
  "/repos/{owner}/{repo}/issues/{issue_number}": ["get", "patch"],
  "/repos/{owner}/{repo}/issues/{issue_number}/comments": ["get", "post"],
  "/repos/{owner}/{repo}/issues/comments/{comment_id}": ["patch", "delete"],
  "/repos/{owner}/{repo}/issues/{issue_number}/labels": ["post"],
  "/repos/{owner}/{repo}/issues/{issue_number}/labels/{name}": ["delete"],
};

const file = new URL("node_modules/@octokit/openapi/generated/api.github.com.json", import.meta.url);
const whole = JSON.parse(readFileSync(file, "utf8"));
const part = { openapi: whole.openapi, info: whole.info, paths: {}, components: {} };
for (const [path, methods] of Object.entries(USED)) {
  if (!whole.paths[path]) throw new Error(`GitHub's description has no ${path}`);
  // Only requests are checked, because the answers come from the emulator.
  const described = (method) => ({ ...whole.paths[path][method], responses: { default: { description: "any" } } });
  part.paths[path] = Object.fromEntries(methods.map((method) => [method, described(method)]));
}

// Copy all components that the part refers to, directly or through other components.
const open = [part.paths];
while (open.length > 0) {
  for (const [key, value] of Object.entries(open.pop())) {
    if (key === "$ref" && typeof value === "string") {
      const [, , kind, name] = value.split("/");
      part.components[kind] ??= {};
      if (!(name in part.components[kind])) {
        part.components[kind][name] = whole.components[kind][name];
        open.push(whole.components[kind][name]);
      }
    } else if (value !== null && typeof value === "object") {
      open.push(value);
    }
  }
}
writeFileSync(process.argv[2], JSON.stringify(part));
