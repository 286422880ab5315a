"""The compiled simulator: tables (NumPy structured arrays) and functions over them. No Gymnasium, no I/O."""
