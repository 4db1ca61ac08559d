"""Clouds behind one port."""
