"""What the router believes about the caches."""
