"""How long tests wait for what takes milliseconds on an idle machine."""

from typing import Final

# Only a defect takes so long, on any machine. Less than the minute after which calls and models give up by
# themselves: a test that waits for something to end must not see that instead.
PATIENCE_S: Final = 50.0
