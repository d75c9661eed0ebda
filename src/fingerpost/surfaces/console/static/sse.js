// Server-sent events over fetch. Unlike EventSource it can POST, and it reports why a stream was refused.

/** Parses a stream in pieces. `feed` returns the events that are complete. */
export function createParser() {
  let rest = "";
  let event = "";
  let data = [];
  let id;
  return { feed };

  function feed(text) {
    const lines = (rest + text).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    const complete = [];
    for (const line of lines) {
      if (line === "") {
        if (data.length) complete.push({ event: event || "message", data: data.join("\n"), id });
        event = "";
        data = [];
        id = undefined;
      } else parseLine(line);
    }
    return complete;
  }

  function parseLine(line) {
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") event = value;
    else if (field === "data") data.push(value);
    else if (field === "id") id = value;
  }
}

/** Calls `onEvent` for each event in the body of `response` until it ends. */
export async function readEvents(response, onEvent) {
  const parser = createParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    for (const event of parser.feed(value)) onEvent(event);
  }
}
