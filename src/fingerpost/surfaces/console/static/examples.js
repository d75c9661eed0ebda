// Example requests for the tools that are connected.

import { me } from "./api.js";
import { useLoad, useStore } from "./ui.js";

// Known tools, by name. `text` is a request that such a tool can answer without further questions.
const KNOWN = [
  { name: /^get_current_time$/, text: "What time is it in Tokyo right now?" },
  { name: /^list_tables$/, text: "Which tables are in the database?" },
  { name: /^(list_allowed_directories|list_roots)$/, text: "Which directories can I use?" },
  { name: /^fetch$/, text: "Fetch https://example.com" },
  { name: /^read_graph$/, text: "Read the whole knowledge graph" },
  { name: /^write_file$/, text: 'Create a file "hello.txt" with the content "Hello from Fingerpost"', writes: true },
  { name: /^echo$/, text: 'Echo "hello"' },
];
const HEBREW = { name: /^get_current_time$/, text: "מה השעה עכשיו בטוקיו?", hint: "the time in Tokyo, in Hebrew" };
const GREETING = { text: "hello", hint: "no tool needed" };
const MAX_EXAMPLES = 8;
const MAX_LENGTH = 60;

/** Returns [{text, hint, writes}]: at most one for each server, then one in Hebrew and one that needs no tool. */
export function buildExamples(tools) {
  const usable = tools.filter((tool) => tool.state === "offered");
  const found = KNOWN.flatMap((known) => {
    const tool = usable.find((one) => known.name.test(one.name));
    return tool ? [{ ...known, server: tool.server, hint: known.writes ? `${tool.key}; needs approval` : tool.key }] : [];
  });
  const others = usable
    .filter((tool) => tool.effect === "read" && !found.some((one) => one.server === tool.server))
    .flatMap((tool) => describeTool(tool));
  const firstByServer = others.filter((one, place) => others.findIndex((other) => other.server === one.server) === place);
  const hebrew = usable.some((tool) => HEBREW.name.test(tool.name)) ? [HEBREW] : [];
  return [...found, ...firstByServer].slice(0, MAX_EXAMPLES).concat(hebrew, GREETING).map(({ text, hint, writes = false }) => ({ text, hint, writes }));
}

/** Uses the first sentence of a tool's description as a request. */
function describeTool({ key, server, description }) {
  const [sentence] = (description ?? "").trim().split(/(?<=[.!?])\s|\n/);
  const text = sentence.replace(/[.!]$/, "");
  return text && text.length <= MAX_LENGTH && /^[\p{L}\p{N} ,'’-]+$/u.test(text) ? [{ text, server, hint: key }] : [];
}

/** Returns the examples for the connected tools; without the right to list them, only the general one. */
export function useExamples() {
  const { person } = useStore(me);
  const { data } = useLoad(person?.rights?.includes("watch") ? "/api/tools?limit=500&state=offered" : null);
  return buildExamples(data?.items ?? []);
}
