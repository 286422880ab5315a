"""The simulator's whole state: codes, columns, tables, and where an instance stands in each of them."""
