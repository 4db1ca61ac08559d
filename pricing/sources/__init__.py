"""Where prices and facts come from. The only part of `pricing` that reads files."""
