"""gpucost: the command that plans, provisions, trains, stops and accounts."""

__version__ = "0.1.0"
