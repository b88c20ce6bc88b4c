"""Loggers that Lightning lacks."""
