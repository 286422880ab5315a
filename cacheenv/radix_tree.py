"""A prefix cache on its own: the engine's radix tree, over plain token lists.

After `tree = RadixTree(capacity_tokens=1000)` and `tree.insert(range(600))`, `tree.match([*range(300), -1])` is 300.
With `lock = tree.lock(range(300))`, which is what an admitted request does, `tree.evict(1000)` frees 300 tokens: only
what no lock protects. After `tree.unlock(lock)` the other 300 may go too.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cacheenv.errors import InputError
from cacheenv.sim.cache import radix
from cacheenv.sim.cache.eviction import EVICTIONS, evict_run, wanted_pages
from cacheenv.sim.core.kinds import code_of
from cacheenv.sim.state.allocate import child_table_size
from cacheenv.sim.state.columns import NODE, STATE, TREE

MAX_PAGES = 2**31 - 1
FIRST_NODES, FIRST_ENTRIES = 64, 1024
NODES_AN_OPERATION = 2  # a split and a new leaf
_TREE = 0  # the pool holds one tree


class CacheFullError(InputError):
    """The tokens do not fit: too much of the cache is locked, or they are more than its capacity."""


@dataclass(frozen=True)
class Lock:
    """A protected path of a :class:`RadixTree`; hand it to :meth:`RadixTree.unlock`, once.

    Attributes:
        number: Counts the locks of a tree.
        tokens: Length of the protected prefix, whole pages.
        namespace: Its namespace.
        node: Where it ends in the tree; splits above do not change it.
    """

    number: int
    tokens: int
    namespace: Hashable
    node: int


class RadixTree:
    """A prefix cache with locks and eviction, counted in tokens.

    It runs on the same compiled functions as the simulator's instances (`cacheenv.sim.cache.radix`). The semantics are
    those of SGLang's `RadixCache` (Zheng et al., "SGLang: Efficient Execution of Structured Language Model Programs",
    NeurIPS 2024, section 3; `python/sglang/srt/mem_cache/radix_cache.py`):

    * Edges are compressed; reading or inserting a prefix splits an edge where the paths part, and makes the whole path
      the most recently used. A lock counts along its path, and copies of the count stay right through splits.
    * Only whole pages are cached: of `n` tokens the first `floor(n / page_tokens) * page_tokens`. A page stands for its
      tokens, all tokens before it, and the namespace, so prompts of two namespaces never share anything.
    * Eviction takes an unlocked leaf, so a parent never goes before its child. SGLang takes the least recently used one
      as a whole (`eviction="lru_node"`). By default it is trimmed page by page from its end, so that exactly what is
      asked for goes, tails before heads (as vLLM's block pool frees a request's blocks in reverse order). Pages whose
      last lock is released become the most recent.

    After every operation `free_tokens + evictable_tokens + protected_tokens == capacity_tokens`.

    Trees can be copied and pickled; a :class:`Lock` is valid for its tree and for copies taken while it was held.
    Memory follows what is cached, not what was ever seen.

    Args:
        capacity_tokens: Size of the cache; what does not fill a page is left out.
        page_tokens: Tokens of a page (1 = token level).
        eviction: What goes first: a value of the scenarios' key `cluster.prefill.eviction`.

    Raises:
        InputError: Unless both numbers are whole, at least one page fits, and the kind of eviction is known.
    """

    def __init__(self, capacity_tokens: int, page_tokens: int = 1, eviction: str = "lru") -> None:
        self._page = _whole("page_tokens", page_tokens, 1)
        pages = _whole("capacity_tokens", capacity_tokens, 1) // self._page
        if not 1 <= pages <= MAX_PAGES:
            raise InputError(
                f"RadixTree: capacity_tokens: expected at least one page of {self._page} tokens and at most "
                f"{MAX_PAGES} pages, got {capacity_tokens}"
            )
        if eviction not in EVICTIONS:
            raise InputError(f"RadixTree: eviction: expected one of {', '.join(EVICTIONS)}, got {eviction!r}")
        self._state = STATE.start.copy()
        self._tree = TREE.start.copy()
        self._tree[_TREE].capacity_pages = pages
        self._tree[_TREE].eviction = code_of(EVICTIONS, eviction)
        self._node = np.zeros(FIRST_NODES, NODE.dtype)
        self._table = np.full(child_table_size(FIRST_NODES), -1, np.int32)
        # Ids of the pages on all edges; an operation's prompt lies behind them at `_end`.
        self._blocks = np.zeros(FIRST_ENTRIES, np.int32)
        self._end = 0
        self._ids: dict[Any, int] = {}  # (id of the page before or -1, page, namespace) -> id, of the cached pages
        self._keys: list[Any] = []  # key of each id
        self._spare: list[int] = []  # ids that no cached page has
        self._locks: dict[int, Lock] = {}
        self._lock_count = 0
        radix.start_pool(self._forest)
        radix.make_tree(self._forest, _TREE)

    @property
    def _forest(self) -> radix.Forest:
        return radix.Forest(self._state, self._blocks, self._tree, self._node, self._table)

    # -- sizes ---------------------------------------------------------------------------------------------------

    @property
    def page_tokens(self) -> int:
        """Tokens of a page."""
        return self._page

    @property
    def capacity_tokens(self) -> int:
        """Tokens that fit, whole pages."""
        return int(self._tree[_TREE].capacity_pages) * self._page

    @property
    def cached_tokens(self) -> int:
        """Tokens in the tree: evictable and protected."""
        return int(self._tree[_TREE].pages) * self._page

    @property
    def protected_tokens(self) -> int:
        """Tokens that some lock protects."""
        return int(self._tree[_TREE].locked_pages) * self._page

    @property
    def evictable_tokens(self) -> int:
        """Cached tokens that no lock protects."""
        return self.cached_tokens - self.protected_tokens

    @property
    def free_tokens(self) -> int:
        """Tokens that could be inserted without evicting anything."""
        return self.capacity_tokens - self.cached_tokens

    def __repr__(self) -> str:
        return (
            f"RadixTree(capacity_tokens={self.capacity_tokens}, page_tokens={self._page}; free {self.free_tokens}, "
            f"evictable {self.evictable_tokens}, protected {self.protected_tokens})"
        )

    # -- operations ----------------------------------------------------------------------------------------------

    def peek(self, tokens: Sequence[int], namespace: Hashable = None, *, limit: int | None = None) -> int:
        """Length of the longest cached prefix; nothing changes, recency included.

        Args:
            tokens: Whole numbers of at most 64 bits.
            namespace: Model, adapter, tenant, salt...: anything hashable, equal ones are one.
            limit: Longest prefix to report; `len(tokens) - 1` leaves one token to compute.

        Returns:
            Tokens, a multiple of `page_tokens`.
        """
        return self._stage(self._pages("peek", tokens, limit, namespace), namespace) * self._page

    def match(self, tokens: Sequence[int], namespace: Hashable = None, *, limit: int | None = None) -> int:
        """Length of the longest cached prefix, which becomes the most recently used.

        Arguments and result are those of :meth:`peek`.
        """
        return self._match(self._pages("match", tokens, limit, namespace), namespace)[0] * self._page

    def insert(self, tokens: Sequence[int], namespace: Hashable = None) -> int:
        """Caches the whole pages of `tokens` and makes them the most recently used; evicts what must go for it.

        Args:
            tokens: Whole numbers of at most 64 bits.
            namespace: See :meth:`peek`.

        Returns:
            Tokens added: those that were not cached yet.

        Raises:
            CacheFullError: When they would not fit even with everything evicted that may be; nothing is added or
                evicted then.
        """
        pages = self._pages("insert", tokens, None, namespace)
        present, node = self._match(pages, namespace)
        missing = len(pages) - present
        forest = self._forest
        if missing == 0:
            radix.insert(forest, _TREE, self._end, len(pages))
            return 0
        radix.lock(forest, _TREE, node)
        room = int(radix.obtainable_pages(forest, _TREE))
        if room >= missing:
            self._evict(int(wanted_pages(forest, _TREE, missing)))
        radix.unlock(forest, _TREE, node)
        if room < missing:
            raise CacheFullError(
                f"insert: {missing * self._page} new tokens do not fit: {room * self._page} of "
                f"{self.capacity_tokens} tokens are free or evictable beside the cached prefix"
            )
        self._stage(pages, namespace)
        before = self._blocks[self._end + present - 1] if present else -1
        for at in range(present, len(pages)):
            before = self._name((int(before), pages[at], namespace))
            self._blocks[self._end + at] = before
        radix.insert(self._forest, _TREE, self._end, len(pages))
        self._end += len(pages)
        return missing * self._page

    def lock(self, target: Sequence[int] | Lock, namespace: Hashable = None, *, limit: int | None = None) -> Lock:
        """Protects the longest cached prefix of `target` from eviction, as an admitted request does.

        Args:
            target: Tokens, as in :meth:`match` (the prefix becomes the most recently used), or a lock that is held, to
                protect the same path once more.
            namespace: See :meth:`peek`; of a lock, its own.
            limit: See :meth:`peek`.

        Returns:
            A new lock; its `tokens` says how much it protects, 0 where nothing was cached.
        """
        if isinstance(target, Lock):
            self._held("lock", target)
            tokens, namespace, node = target.tokens, target.namespace, target.node
        else:
            matched, node = self._match(self._pages("lock", target, limit, namespace), namespace)
            tokens = matched * self._page
        radix.lock(self._forest, _TREE, node)
        made = Lock(self._lock_count, tokens, namespace, node)
        self._lock_count += 1
        self._locks[made.number] = made
        return made

    def unlock(self, lock: Lock) -> None:
        """Gives a lock back; what no other lock protects becomes evictable, and the most recently used.

        Raises:
            InputError: For a lock that is not held: given back before, or of another tree.
        """
        self._held("unlock", lock)
        del self._locks[lock.number]
        radix.unlock(self._forest, _TREE, lock.node)

    def evict(self, tokens: int) -> int:
        """Evicts at least `tokens` tokens, in the order of the kind of eviction, as far as no lock protects them.

        Args:
            tokens: Tokens that shall become free; whole pages go.

        Returns:
            Tokens freed.
        """
        return self._evict(-(-_whole("tokens", tokens, 0, "evict") // self._page)) * self._page

    # -- inside --------------------------------------------------------------------------------------------------

    def _pages(self, method: str, tokens: Any, limit: int | None, namespace: Hashable) -> list[Any]:
        """The whole pages of a prompt: its tokens at token level, else tuples of them."""
        try:
            hash(namespace)
        except TypeError:
            raise InputError(f"{method}: namespace: expected something hashable, got {namespace!r}") from None
        values = np.asarray(tokens)
        if values.ndim == 1 and values.size == 0:
            values = values.astype(np.int64)
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise InputError(f"{method}: tokens: expected a flat sequence of whole numbers of at most 64 bits")
        length = len(values)
        if limit is not None:
            length = min(length, _whole("limit", limit, 0, method))
        count = length // self._page
        flat = values[: count * self._page].tolist()
        if self._page == 1:
            return flat
        return [tuple(flat[at : at + self._page]) for at in range(0, len(flat), self._page)]

    def _stage(self, pages: list[Any], namespace: Hashable) -> int:
        """Writes the ids of the known pages of a prompt behind those in use; returns how many are known."""
        self._reserve(len(pages))
        before = -1
        for at, page in enumerate(pages):
            known = self._ids.get((before, page, namespace))
            if known is None:
                return at
            self._blocks[self._end + at] = before = known
        return len(pages)

    def _match(self, pages: list[Any], namespace: Hashable) -> tuple[int, int]:
        """Pages matched and the node where they end."""
        known = self._stage(pages, namespace)
        if int(self._state[0].free_nodes) < NODES_AN_OPERATION:
            self._grow_nodes(2 * len(self._node))
        pages_matched, node = radix.match(self._forest, _TREE, self._end, known)
        return int(pages_matched), int(node)

    def _evict(self, pages: int) -> int:
        """Evicts pages until `pages` have gone, or no more may, and forgets their ids."""
        freed = 0
        while freed < pages:
            taken = int(evict_run(self._forest, _TREE, pages - freed))
            if taken == 0:
                break
            first = int(self._tree[_TREE].run_start)
            for name in self._blocks[first : first + taken].tolist():
                del self._ids[self._keys[name]]
                self._keys[name] = None
                self._spare.append(name)
            freed += taken
        return freed

    def _name(self, key: Any) -> int:
        """A fresh id for a page that is about to be cached."""
        if self._spare:
            name = self._spare.pop()
            self._keys[name] = key
        else:
            name = len(self._keys)
            self._keys.append(key)
        self._ids[key] = name
        return name

    def _held(self, method: str, lock: Lock) -> None:
        if not isinstance(lock, Lock) or self._locks.get(lock.number) != lock:
            raise InputError(f"{method}: expected a lock of this tree that is held, got {lock!r}")

    def _reserve(self, entries: int) -> None:
        """Makes room for `entries` ids behind those in use: closes the gaps of evicted pages, or takes more memory."""
        if self._end + entries <= len(self._blocks):
            return
        size = len(self._blocks)
        while size < 2 * (int(self._tree[_TREE].pages) + entries):
            size *= 2
        used = np.flatnonzero(self._node["length"] * self._node["used"])
        lengths = self._node["length"][used].astype(np.int64)
        starts = np.cumsum(lengths) - lengths
        total = int(lengths.sum())
        gathered = np.repeat(self._node["start"][used] - starts, lengths) + np.arange(total)
        moved = np.zeros(size, np.int32)
        moved[:total] = self._blocks[gathered]
        self._node["start"][used] = starts
        self._blocks, self._end = moved, total

    def _grow_nodes(self, count: int) -> None:
        """More rows for nodes; their hash table is built anew."""
        old = len(self._node)
        self._node = np.concatenate([self._node, np.zeros(count - old, NODE.dtype)])
        self._table = np.full(child_table_size(count), -1, np.int32)
        radix.adopt_nodes(self._forest, old)


def _whole(name: str, value: Any, low: int, method: str = "RadixTree") -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
        raise InputError(f"{method}: {name}: expected a whole number >= {low}, got {value!r}")
    return int(value)
