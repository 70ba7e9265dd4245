"""What a real decoder logged, held against a rule: rounds replayed, two dumps compared, a dump inspected."""
