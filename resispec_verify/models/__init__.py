"""Local models: GGUF files and Hugging Face folders, opened, and run over sequences and trees."""
