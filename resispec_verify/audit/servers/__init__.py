"""Servers, one schema a module."""
