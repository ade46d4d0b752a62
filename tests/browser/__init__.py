"""What a reader sees in a browser."""
