"""The exit codes of every command."""

DONE, INCOMPLETE, FAILED, INTERRUPTED = 0, 1, 2, 130

MEANINGS = {
    DONE: "Done.",
    INCOMPLETE: "Incomplete: a solution has no score, a check failed, or a run paused.",
    FAILED: "Failed: a wrong call, or an error in input or output. See stderr.",
    INTERRUPTED: "Interrupted by Ctrl+C.",
}
"""The table in the help of `surefoot` and in docs/scoring.md."""
