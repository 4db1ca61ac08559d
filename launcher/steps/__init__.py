"""One function `(run, services) -> event` for each state, each safe to run twice and to be cut anywhere."""
