"""What the project says it does, shown from the outside."""
