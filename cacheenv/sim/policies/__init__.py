"""How policies are called by the compiled loops, and how Python decides in them."""
