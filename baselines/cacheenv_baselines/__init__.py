"""Published schedulers as policies: `make("sglang")`, `names()`.

Importing the package compiles nothing; a policy is compiled (and cached on disk) when it is first made.
"""

from cacheenv_baselines.registry import make, names

__all__ = ["make", "names"]
