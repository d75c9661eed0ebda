// Arguments of a call: shown so that a person can read them, and edited in a form made from their schema.
//
// The form is a convenience. What is allowed is said by the server's own check of the edited call; here we
// only catch what can be said at once, beside the field.
import { Button, Field, Json, html, spelledOut, visible } from "../ui.js";

// ---- reading a schema ----------------------------------------------------------------------------------

/** The one type of a value's schema; "json" for what a form has no better field for. */
export function typeOf(schema) {
  if (!schema || typeof schema !== "object") return "json";
  const types = [].concat(schema.type ?? []).filter((type) => type !== "null");
  if (schema.enum && schema.enum.every((value) => typeof value !== "object" || value === null)) return "choice";
  if (types.length === 1) return ["string", "integer", "number", "boolean"].includes(types[0]) ? types[0] : "json";
  const ways = (schema.anyOf ?? schema.oneOf ?? []).filter((way) => way.type !== "null");
  return types.length === 0 && ways.length === 1 ? typeOf(ways[0]) : "json";
}

/** One field for each argument: those of the schema in its order, then those that are given beside it. */
export function fieldsOf(schema, given) {
  const properties = new Map(Object.entries(schema?.properties ?? {})); // a name may be "constructor"
  const required = new Set(schema?.required ?? []);
  const names = new Set([...properties.keys(), ...Object.keys(given)]);
  return [...names].map((name) => {
    const about = simple(properties.get(name));
    const type = properties.has(name) ? typeOf(about) : "string";
    const fits = !Object.hasOwn(given, name) || suits(type, about, given[name]);
    return { name, type: fits ? type : "json", schema: about, required: required.has(name) };
  });
}

/** Whether a field of this type can hold the value, so that it comes out as it went in. */
function suits(type, schema, value) {
  if (type === "choice") return schema.enum.includes(value);
  if (type === "integer" || type === "number") return typeof value === "number";
  return type === "json" || typeof value === type;
}

/** The schema without the way around null, so that its bounds can be read. */
function simple(schema) {
  if (!schema || typeof schema !== "object") return {};
  const ways = (schema.anyOf ?? schema.oneOf ?? []).filter((way) => way.type !== "null");
  return ways.length === 1 ? { ...schema, ...ways[0] } : schema;
}

// ---- from arguments to what is typed, and back ---------------------------------------------------------

/** What stands in the fields: text, as a person types it; undefined where an argument is not given. */
export function draftOf(fields, given) {
  return Object.fromEntries(
    fields.map(({ name, type }) => {
      if (!Object.hasOwn(given, name)) return [name, undefined];
      const value = given[name];
      const asText = type === "string" && typeof value === "string";
      return [name, asText ? value : JSON.stringify(value, null, type === "json" ? 2 : 0)];
    }),
  );
}

/** {arguments, errors}: what the draft means, and a sentence for each field that means nothing. */
export function meaningOf(fields, draft) {
  const meant = [];
  const errors = [];
  for (const field of fields) {
    const text = Object.hasOwn(draft, field.name) ? draft[field.name] : undefined;
    if (text === undefined || (text === "" && field.type !== "string")) {
      if (field.required) errors.push([field.name, "This is needed."]);
      continue;
    }
    const { value, error } = valueOf(field, text);
    if (error) errors.push([field.name, error]);
    else meant.push([field.name, value]);
  }
  return { arguments: Object.fromEntries(meant), errors: Object.fromEntries(errors) };
}

function valueOf(field, text) {
  if (field.type === "string") return checked(field.schema, text);
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return { error: field.type === "json" ? "This is not JSON." : "This is not a number." };
  }
  return field.type === "integer" || field.type === "number" ? numeric(field, value) : { value };
}

function numeric({ type, schema }, value) {
  if (value === null) return { value };
  if (typeof value !== "number") return { error: "This is not a number." };
  if (type === "integer" && !Number.isInteger(value)) return { error: "This has to be a whole number." };
  if (value < schema.minimum) return { error: `At least ${schema.minimum}.` };
  if (value > schema.maximum) return { error: `At most ${schema.maximum}.` };
  return { value };
}

function checked(schema, text) {
  if ([...text].length < schema.minLength) return { error: `At least ${schema.minLength} characters.` };
  if ([...text].length > schema.maxLength) return { error: `At most ${schema.maxLength} characters.` };
  return { value: text };
}

/** {arguments} or {error}: what was typed as one piece of JSON. */
export function objectOf(text) {
  try {
    const value = JSON.parse(text);
    if (value === null || typeof value !== "object" || Array.isArray(value)) {
      return { error: "Arguments are an object: { … }" };
    }
    return { arguments: value };
  } catch (error) {
    return { error: `This is not JSON: ${error.message}` };
  }
}

// ---- showing -------------------------------------------------------------------------------------------

/** The arguments that hold what looks like a secret: of `/headers/authorization` and `/keys/0`, headers and keys. */
export const secretNames = (pointers = []) => [
  ...new Set(pointers.map((pointer) => pointer.split("/")[1].replaceAll("~1", "/").replaceAll("~0", "~"))),
];

/**
 * Every argument with its name, exactly; text as text, the rest as JSON. `before`: mark what differs from it.
 * `secret` names those that look like a secret; those in `covered` are shown when somebody asks (`onUncover(name)`).
 */
export function Arguments({ value, schema, before, secret = [], covered = [], onUncover }) {
  const names = Object.keys(value ?? {});
  if (!names.length) return html`<p class="faint">No arguments.</p>`;
  return html`<dl class="arguments">
    ${names.map((name) => {
      const changed = before && JSON.stringify(before[name]) !== JSON.stringify(value[name]);
      const about = schema?.properties?.[name]?.description;
      return html`<div key=${name} class=${changed ? "changed" : ""}>
        <dt title=${about ?? ""}>
          ${spelledOut(name)}${changed && html` <small>edited</small>`}
          ${secret.includes(name) && html` <small class="looks-secret">looks like a secret</small>`}
        </dt>
        <dd>
          ${covered.includes(name)
            ? html`<${Button} onClick=${() => onUncover(name)}>Show ${spelledOut(name)}, covered: it looks like a secret<//>`
            : html`<${Value} value=${value[name]} />`}
        </dd>
      </div>`;
    })}
  </dl>`;
}

function Value({ value }) {
  if (value !== null && typeof value === "object") return html`<${Json} value=${value} />`;
  if (typeof value !== "string") return html`<code>${JSON.stringify(value)}</code>`;
  const lines = value.split("\n").length;
  return html`<pre class="argument-text" dir="auto" tabindex="0"><bdi dir="auto">${spelledOut(value)}</bdi></pre>
    ${lines > 12 || value.length > 1200
      ? html`<small class="faint">${lines} lines, ${value.length} characters: scroll to read all of it</small>`
      : null}`;
}

/** One field for each argument. `draft` is text by name; `onDraft(name, text)` hears every change. */
export function ArgumentFields({ fields, draft, errors, secret = [], onDraft }) {
  return fields.map((field) => {
    const label = `${field.name}${field.required ? " (needed)" : ""}`;
    const text = draft[field.name];
    const hint = [
      field.schema.description,
      secret.includes(field.name) && "Looks like a secret.",
      text !== undefined && visible(text) !== text && "Holds characters one cannot see.",
    ]
      .filter(Boolean)
      .join(" ");
    return html`<${Field} key=${field.name} label=${label} hint=${hint} error=${errors[field.name]}>
      <${Input}
        field=${field}
        text=${text}
        onText=${(text) => onDraft(field.name, text)}
      />
    <//>`;
  });
}

function Input({ field, text, onText, id, ...rest }) {
  const typed = (event) => onText(event.target.value);
  if (field.type === "boolean" || field.type === "choice") {
    const choices = field.type === "boolean" ? [true, false] : field.schema.enum;
    return html`<select id=${id} ...${rest} value=${text ?? ""} onChange=${(event) => onText(event.target.value || undefined)}>
      ${!(field.required && text !== undefined) && html`<option value="">not given</option>`}
      ${choices.map((choice) => {
        const written = JSON.stringify(choice);
        return html`<option key=${written} value=${written}>${typeof choice === "string" ? choice : written}</option>`;
      })}
    </select>`;
  }
  if (field.type === "integer" || field.type === "number") {
    return html`<input id=${id} ...${rest} type="text" inputmode="decimal" value=${text ?? ""} onInput=${typed} />`;
  }
  const lines = Math.min(12, Math.max(1, (text ?? "").split("\n").length));
  return html`<textarea
    id=${id}
    ...${rest}
    dir="auto"
    spellcheck="false"
    class=${field.type === "json" ? "code" : ""}
    rows=${field.type === "json" ? Math.max(2, lines) : lines}
    value=${text ?? ""}
    onInput=${typed}
  ></textarea>`;
}
