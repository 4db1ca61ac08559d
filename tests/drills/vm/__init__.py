"""Fake VMs for the embedded cloud: a network namespace, an overlay root and a real systemd for each instance."""
