"""The view: what policies and observations see at a decision."""
