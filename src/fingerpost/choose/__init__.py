"""What a language model is asked, and what is made of what it says. Nothing here acts on the world."""
