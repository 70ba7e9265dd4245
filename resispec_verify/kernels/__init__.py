"""Pure array functions shared by rules, evidence and analysis. They know nothing of files or commands."""
