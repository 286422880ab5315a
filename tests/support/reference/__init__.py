"""The reference simulator: plain, slow Python, the oracle that the compiled engine is compared with.

It shares no code with `cacheenv`. Every decode iteration is stepped, every page is a dictionary entry, every link share
is counted afresh, every token gap is kept.
"""

from .cluster import ReferenceCluster, ReferenceRequest
from .records import InstanceRecord, RequestRecord
from .scripted import ScriptedActions
from .simulator import ReferenceSimulator

__all__ = [
    "InstanceRecord",
    "ReferenceCluster",
    "ReferenceRequest",
    "ReferenceSimulator",
    "RequestRecord",
    "ScriptedActions",
]
