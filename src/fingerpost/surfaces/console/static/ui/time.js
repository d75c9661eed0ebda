// Moments and lengths of time in few words.

import { html, useEffect, useState } from "../vendor/htm-preact.js";

const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "narrow" });
const EXACT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const UNITS = [["day", 86_400], ["hour", 3600], ["minute", 60]];

export function ago(at, now = Date.now()) {
  const seconds = (new Date(at).getTime() - now) / 1000;
  for (const [unit, length] of UNITS) {
    if (Math.abs(seconds) >= length) return RELATIVE.format(Math.trunc(seconds / length), unit);
  }
  return Math.abs(seconds) < 5 ? "now" : RELATIVE.format(Math.trunc(seconds), "second");
}

// One clock for the whole page, however many moments it shows.
const watchers = new Set();
let ticking;

function useTick() {
  const [, tick] = useState(0);
  useEffect(() => {
    watchers.add(tick);
    ticking ??= setInterval(() => watchers.forEach((watcher) => watcher((n) => n + 1)), 10_000);
    return () => {
      watchers.delete(tick);
      if (!watchers.size) ticking = clearInterval(ticking);
    };
  }, []);
}

/** "3 min. ago", with the exact moment as its title. */
export function Ago({ at }) {
  useTick();
  if (!at) return html`<span class="faint">never</span>`;
  return html`<time datetime=${at} title=${exact(at)}>${ago(at)}</time>`;
}

export const Time = Ago;

/** The time of day, for lists in which every line is young. */
export const clock = (at) => CLOCK.format(new Date(at));

export const exact = (at) => EXACT.format(new Date(at));

/** "340 ms", "1.2 s", "4 min". */
export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  if (milliseconds < 1) return "<1 ms";
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(milliseconds < 10_000 ? 1 : 0)} s`;
  if (milliseconds < 3_600_000) return `${Math.round(milliseconds / 60_000)} min`;
  return `${(milliseconds / 3_600_000).toFixed(1)} h`;
}

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A count a person can read: 1,234 and 56.7K. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 10_000 ? WHOLE.format(value) : SHORT.format(value);
}
