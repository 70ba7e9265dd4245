"""What people look at: one page (HTML) and its pictures."""
