#!/usr/bin/env bash
# What `make up` and `make down` do last: Fingerpost with the example servers in the background, or its end.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=.fingerpost pid=.fingerpost/serve.pid log=.fingerpost/serve.log
port=${PORT:-8642}
mkdir -p "$folder"

stop() {
  if [ -f "$pid" ] && kill "$(cat "$pid")" 2>/dev/null; then
    for _ in $(seq 100); do kill -0 "$(cat "$pid")" 2>/dev/null || break; sleep 0.1; done
    echo "stopped"
  fi
  rm -f "$pid"
}

# Whether it listens and has tried every server; curl is not on every machine.
ready() {
  python - "$port" <<'PYTHON'
import sys, urllib.request
try:
    urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/readyz", timeout=2)
except OSError:
    sys.exit(1)
PYTHON
}

start() {
  stop >/dev/null
  nohup fingerpost serve --servers examples/servers.json --config examples/own.toml --port "$port" >"$log" 2>&1 </dev/null &
  echo $! >"$pid"
  for _ in $(seq 120); do
    if ! kill -0 "$(cat "$pid")" 2>/dev/null; then
      cat "$log" >&2
      echo "It did not start. If the port is taken, choose another: make up PORT=9000" >&2
      rm -f "$pid"
      exit 1
    fi
    ready && break
    sleep 0.5
  done
  echo
  cat "$log"
  echo
  echo "Open the console, signed in (under Ask, example requests are one click away):"
  echo "  $(fingerpost console --servers examples/servers.json --config examples/own.toml)"
  echo "That link works once, within 10 minutes; run this for another: ${FINGERPOST_STORE__URL:+FINGERPOST_STORE__URL=$FINGERPOST_STORE__URL }fingerpost console"
  echo "It runs in the background: make down stops it, $log is its log."
}

case "${1:-}" in
  start) start ;;
  stop) stop ;;
  *) echo "usage: examples/up.sh start|stop" >&2; exit 2 ;;
esac
