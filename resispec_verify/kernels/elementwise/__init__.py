"""Array functions of a row: probabilities, residuals, divergences, the order by p/q."""
