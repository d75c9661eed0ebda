// Formatting of times, durations and numbers.

import { html, useEffect, useState } from "../vendor/htm-preact.js";

const EXACT = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" }); // 2026-05-04 09:30:00, local time
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const UNITS = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];
const JUST_NOW_S = 5;

/** "55 s ago", "3 min ago", "in 2 h". */
export function formatAge(at, now = Date.now()) {
  const seconds = (now - new Date(at).getTime()) / 1000;
  const age = Math.abs(seconds);
  if (age < JUST_NOW_S) return "just now";
  const [unit, length] = UNITS.find(([, one]) => age >= one);
  const words = `${Math.trunc(age / length)} ${unit}`;
  return seconds < 0 ? `in ${words}` : `${words} ago`;
}

// One timer for all times on the page.
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

/** "3 min ago", with the exact time as its title. */
export function Ago({ at }) {
  useTick();
  if (!at) return html`<span class="faint">never</span>`;
  return html`<time datetime=${at} title=${formatExact(at)}>${formatAge(at)}</time>`;
}

export const Time = Ago;

/** The exact time, with its age as title. */
export const Exact = ({ at }) => html`<time class="nowrap" datetime=${at} title=${formatAge(at)}>${formatExact(at)}</time>`;

/** The time of day, for lists of recent entries. */
export const formatClock = (at) => CLOCK.format(new Date(at));

/** The time of day with milliseconds. */
export const formatPreciseClock = (at) => `${formatClock(at)}.${String(new Date(at).getMilliseconds()).padStart(3, "0")}`;

export const formatExact = (at) => EXACT.format(new Date(at));

/** "340 ms", "1.2 s", "4 min". */
export function formatDuration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  if (milliseconds < 1) return "<1 ms";
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(milliseconds < 10_000 ? 1 : 0)} s`;
  if (milliseconds < 3_600_000) return `${Math.round(milliseconds / 60_000)} min`;
  return `${(milliseconds / 3_600_000).toFixed(1)} h`;
}

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A readable count: 1,234 and 56.7K. */
export function formatNumber(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) < 10_000 ? WHOLE.format(value) : SHORT.format(value);
}
