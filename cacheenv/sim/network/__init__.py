"""Links that all flows share."""
