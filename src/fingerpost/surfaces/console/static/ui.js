// Exports for all pages. Untrusted text is always put into text nodes; nothing here writes HTML.

export {
  Component,
  createContext,
  h,
  html,
  render,
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "./vendor/htm-preact.js";

export { Bidi, Code, Json, Name, escapeAllInvisible, escapeInvisible } from "./ui/text.js";
export { Diff, diffLines } from "./ui/diff.js";
export { Ago, Exact, Time, formatDuration, formatNumber } from "./ui/time.js";
export { Badge, Bar, Button, Chip, Empty, Facts, Field, Findings, Page, Skeleton, Table, Tabs } from "./ui/parts.js";
export { Dialog } from "./ui/dialog.js";
export { Toast, toast } from "./ui/toast.js";
export { PendingPage, Problem, useLoad, useStore } from "./ui/load.js";
export { shortcutsEnabled, useKeys } from "./ui/keys.js";
