"""What is asked of rules at positions: numbers a position, and their summaries."""
