"""Servers, one schema a module."""

from resispec_verify.audit.servers.connect import SCHEMAS, connect
from resispec_verify.audit.servers.http import same_server

__all__ = ["SCHEMAS", "connect", "same_server"]
