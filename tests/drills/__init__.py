"""Drills: whole runs on the embedded cloud and on fake VMs, with somebody pulling plugs. Not collected by pytest."""
