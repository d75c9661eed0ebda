// Arguments of a call: shown in readable form, and edited in a form built from their schema.
//
// The server validates the edited call. The form only reports simple errors next to the field.
import { Button, Field, Json, html, escapeAllInvisible, escapeInvisible } from "../ui.js";

/** Returns the field type for a schema, "json" if there is no better field. */
export function getFieldType(schema) {
  if (!schema || typeof schema !== "object") return "json";
  const types = [].concat(schema.type ?? []).filter((type) => type !== "null");
  if (schema.enum && schema.enum.every((value) => typeof value !== "object" || value === null)) return "choice";
  if (types.length === 1) return ["string", "integer", "number", "boolean"].includes(types[0]) ? types[0] : "json";
  const variants = (schema.anyOf ?? schema.oneOf ?? []).filter((variant) => variant.type !== "null");
  return types.length === 0 && variants.length === 1 ? getFieldType(variants[0]) : "json";
}

/** Builds one field for each argument: those of the schema in its order, then other given ones. */
export function buildFields(schema, given) {
  const properties = new Map(Object.entries(schema?.properties ?? {})); // a name may be "constructor"
  const required = new Set(schema?.required ?? []);
  const names = new Set([...properties.keys(), ...Object.keys(given)]);
  return [...names].map((name) => {
    const about = dropNullVariant(properties.get(name));
    const type = properties.has(name) ? getFieldType(about) : "string";
    const fits = !Object.hasOwn(given, name) || canHold(type, about, given[name]);
    return { name, type: fits ? type : "json", schema: about, required: required.has(name) };
  });
}

/** Returns whether a field of this type can hold the value without changing it. */
function canHold(type, schema, value) {
  if (type === "choice") return schema.enum.includes(value);
  if (type === "integer" || type === "number") return typeof value === "number";
  return type === "json" || typeof value === type;
}

/** Returns the schema without its null variant, so that its limits can be read. */
function dropNullVariant(schema) {
  if (!schema || typeof schema !== "object") return {};
  const variants = (schema.anyOf ?? schema.oneOf ?? []).filter((variant) => variant.type !== "null");
  return variants.length === 1 ? { ...schema, ...variants[0] } : schema;
}

/** Returns the text of each field, undefined for missing arguments. */
export function buildDraft(fields, given) {
  return Object.fromEntries(
    fields.map(({ name, type }) => {
      if (!Object.hasOwn(given, name)) return [name, undefined];
      const value = given[name];
      const asText = type === "string" && typeof value === "string";
      return [name, asText ? value : JSON.stringify(value, null, type === "json" ? 2 : 0)];
    }),
  );
}

/** Parses the draft: {arguments, errors}, with a message for each invalid field. */
export function parseDraft(fields, draft) {
  const parsed = [];
  const errors = [];
  for (const field of fields) {
    const text = Object.hasOwn(draft, field.name) ? draft[field.name] : undefined;
    if (text === undefined || (text === "" && field.type !== "string")) {
      if (field.required) errors.push([field.name, "Required."]);
      continue;
    }
    const { value, error } = parseValue(field, text);
    if (error) errors.push([field.name, error]);
    else parsed.push([field.name, value]);
  }
  return { arguments: Object.fromEntries(parsed), errors: Object.fromEntries(errors) };
}

function parseValue(field, text) {
  if (field.type === "string") return checkText(field.schema, text);
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return { error: field.type === "json" ? "This is not valid JSON." : "Enter a number." };
  }
  return field.type === "integer" || field.type === "number" ? checkNumber(field, value) : { value };
}

function checkNumber({ type, schema }, value) {
  if (value === null) return { value };
  if (typeof value !== "number") return { error: "Enter a number." };
  if (type === "integer" && !Number.isInteger(value)) return { error: "Enter a whole number." };
  if (value < schema.minimum) return { error: `At least ${schema.minimum}.` };
  if (value > schema.maximum) return { error: `At most ${schema.maximum}.` };
  return { value };
}

function checkText(schema, text) {
  if ([...text].length < schema.minLength) return { error: `At least ${schema.minLength} characters.` };
  if ([...text].length > schema.maxLength) return { error: `At most ${schema.maxLength} characters.` };
  return { value: text };
}

/** Parses arguments typed as JSON: {arguments} or {error}. */
export function parseObject(text) {
  try {
    const value = JSON.parse(text);
    if (value === null || typeof value !== "object" || Array.isArray(value)) {
      return { error: "Arguments must be a JSON object: { … }" };
    }
    return { arguments: value };
  } catch (error) {
    return { error: `This is not valid JSON: ${error.message}` };
  }
}

/** Returns the arguments with values that look secret: `/headers/authorization` and `/keys/0` give headers and keys. */
export const getSecretNames = (pointers = []) => [
  ...new Set(pointers.map((pointer) => pointer.split("/")[1].replaceAll("~1", "/").replaceAll("~0", "~"))),
];

/**
 * All arguments with exact values; text as text, other values as JSON. `before`: mark differences to it.
 * `secret`: arguments that look secret; those in `covered` are revealed by `onUncover(name)`.
 */
export function Arguments({ value, schema, before, secret = [], covered = [], onUncover }) {
  const names = Object.keys(value ?? {});
  if (!names.length) return html`<p class="faint">No arguments.</p>`;
  return html`<dl class="arguments">
    ${names.map((name) => {
      const changed = before && JSON.stringify(before[name]) !== JSON.stringify(value[name]);
      const about = schema?.properties?.[name]?.description;
      return html`<div key=${name} class=${changed ? "changed" : ""}>
        <dt title=${escapeInvisible(about ?? "")}>
          ${escapeAllInvisible(name)}${changed && html` <small>edited</small>`}
          ${secret.includes(name) && html` <small class="looks-secret">looks like a secret</small>`}
        </dt>
        <dd>
          ${covered.includes(name)
            ? html`<${Button} onClick=${() => onUncover(name)}>Show ${escapeAllInvisible(name)} (hidden: looks like a secret)<//>`
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
  return html`<pre class="argument-text" dir="auto" tabindex="0"><bdi dir="auto">${escapeAllInvisible(value)}</bdi></pre>
    ${lines > 12 || value.length > 1200
      ? html`<small class="faint">${lines} lines, ${value.length} characters: scroll to read all of it</small>`
      : null}`;
}

/** One field for each argument. `draft` is text by name; `onDraft(name, text)` is called on every change. */
export function ArgumentFields({ fields, draft, errors, secret = [], onDraft }) {
  return fields.map((field) => {
    const label = `${escapeAllInvisible(field.name)}${field.required ? " (required)" : ""}`;
    const text = draft[field.name];
    const hint = [
      field.schema.description && escapeInvisible(field.schema.description),
      secret.includes(field.name) && "Looks like a secret.",
      text !== undefined && escapeInvisible(text) !== text && "Contains invisible characters.",
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
  const handleInput = (event) => onText(event.target.value);
  if (field.type === "boolean" || field.type === "choice") {
    const choices = field.type === "boolean" ? [true, false] : field.schema.enum;
    return html`<select id=${id} ...${rest} value=${text ?? ""} onChange=${(event) => onText(event.target.value || undefined)}>
      ${!(field.required && text !== undefined) && html`<option value="">not set</option>`}
      ${choices.map((choice) => {
        const json = JSON.stringify(choice);
        return html`<option key=${json} value=${json}>${escapeInvisible(typeof choice === "string" ? choice : json)}</option>`;
      })}
    </select>`;
  }
  if (field.type === "integer" || field.type === "number") {
    return html`<input id=${id} ...${rest} type="text" inputmode="decimal" value=${text ?? ""} onInput=${handleInput} />`;
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
    onInput=${handleInput}
  ></textarea>`;
}
