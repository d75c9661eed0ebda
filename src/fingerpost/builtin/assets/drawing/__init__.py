"""What pictures are made of, and the two ways to write one down."""
