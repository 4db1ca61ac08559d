"""Object storage behind a port of four calls."""
