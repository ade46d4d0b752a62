"""Pictures of what the laboratory finds, drawn by matplotlib as SVG text: the same rows give the same bytes."""
