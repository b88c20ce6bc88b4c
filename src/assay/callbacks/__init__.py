"""Callbacks that Lightning lacks."""
