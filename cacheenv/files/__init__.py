"""Files and the terminal: YAML, writing in one piece, versions, progress. Knows nothing of serving."""
