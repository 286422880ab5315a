"""How the simulator is compiled, its timers and its random numbers."""
