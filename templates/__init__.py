"""Files that are filled in or shown, never run from here: user-data, example jobs, policies. No logic."""
