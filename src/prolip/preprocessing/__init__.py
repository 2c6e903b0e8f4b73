"""What goes into a tower: pixels, token ids, and which of them are masked."""
