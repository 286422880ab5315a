"""For tests of one's own policies: :func:`check_policy`, and views and random streams made by hand.

Not imported by `import cacheenv`.
"""

from cacheenv.testing.check import check_policy
from cacheenv.testing.problems import PolicyCheckError, PolicyCheckWarning
from cacheenv.testing.views import empty_view, random_stream

__all__ = ["PolicyCheckError", "PolicyCheckWarning", "check_policy", "empty_view", "random_stream"]
