"""What is asked of marginals: tables over whole dumps."""
