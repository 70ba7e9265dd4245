"""Servers, one schema a module."""

from resispec_verify.audit.servers.connect import SCHEMAS, connect

__all__ = ["SCHEMAS", "connect"]
