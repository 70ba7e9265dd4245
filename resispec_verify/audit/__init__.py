"""A running engine with speculation, audited from outside against the same engine without it."""
