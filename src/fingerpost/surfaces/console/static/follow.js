// The events of one packet, loaded and then followed live.

import { get, stream } from "./api.js";
import { useCallback, useEffect, useRef, useState } from "./ui.js";

const MAX_EVENTS = 5000; // of one packet

const OPEN_OUTCOMES = new Set(["waiting", "asked"]);

/** Returns whether this event is the packet's last. A packet that waits for an approval or a reply continues later. */
export function isFinalEvent(event, bare) {
  if (event.kind === "route_ended") return !OPEN_OUTCOMES.has(event.data.outcome);
  return bare && event.kind === "call_finished";
}

/** Returns {events, line, error, running} of the packet, updated while it runs. */
export function usePacket(packetId) {
  const [state, setState] = useState({ events: [], line: null, error: null, running: true });
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (!packetId) return undefined;
    const control = new AbortController();
    let stop = () => {};
    setState({ events: [], line: null, error: null, running: true });
    load().catch((error) => control.signal.aborted || setState((before) => ({ ...before, error, running: false })));
    return () => (control.abort(), stop());

    async function load() {
      const { line, events } = await get(`/api/packets/${encodeURIComponent(packetId)}`, undefined, { signal: control.signal });
      const running = line.state !== "ended";
      setState({ events, line, error: null, running });
      if (running) stop = followPacket(packetId, { after: events.at(-1)?.seq, bare: line.kind === "call", onEvents, onEnd });
    }
    function onEvents(newEvents) {
      setState((before) => ({ ...before, events: [...before.events, ...newEvents].slice(-MAX_EVENTS) }));
    }
    async function onEnd() {
      setState((before) => ({ ...before, running: false }));
      const { line } = await get(`/api/packets/${encodeURIComponent(packetId)}`, undefined, { signal: control.signal });
      setState((before) => ({ ...before, line }));
    }
  }, [packetId, round]);
  const reload = useCallback(() => setRound((count) => count + 1), []);
  return { ...state, reload };
}

/** Calls `onEvents` at most once per frame until the packet ends. Returns a function that stops it. */
export function followPacket(packetId, { after, bare = false, onEvents, onEnd }) {
  let pendingEvents = [];
  let frame = 0;
  let ended = false;
  const flush = () => {
    frame = 0;
    const newEvents = pendingEvents;
    pendingEvents = [];
    onEvents(newEvents);
    if (ended) onEnd?.();
  };
  const close = stream(
    "/api/events",
    {
      any(event) {
        if (!event?.event_id || ended) return;
        pendingEvents.push(event);
        ended = isFinalEvent(event, bare);
        if (ended) close();
        frame ||= requestAnimationFrame(flush);
      },
    },
    { params: { packet_id: packetId, after }, after },
  );
  return () => {
    close();
    cancelAnimationFrame(frame);
  };
}
