"""Kinds of eviction on trees small enough to follow by hand; one letter of a prompt is one page."""

from __future__ import annotations

import pytest

from cacheenv import InputError, RadixTree


def tokens(letters: str) -> list[int]:
    return [ord(letter) for letter in letters]


def tree_with(eviction: str, *prompts: str, capacity: int = 100) -> RadixTree:
    """A tree in which the prompts were inserted one after the other."""
    tree = RadixTree(capacity, eviction=eviction)
    for prompt in prompts:
        tree.insert(tokens(prompt))
    return tree


def left(tree: RadixTree, *prompts: str) -> list[int]:
    """How much of each prompt is cached."""
    return [tree.peek(tokens(prompt)) for prompt in prompts]


def test_lru_takes_single_pages_from_the_tail_of_the_oldest_leaf():
    tree = tree_with("lru", "abcd", "xyz", "abef")
    assert tree.evict(1) == 1
    assert left(tree, "abcd", "xyz", "abef") == [3, 3, 4]  # d, of the oldest leaf "cd"
    assert tree.evict(2) == 2
    assert left(tree, "abcd", "xyz", "abef") == [2, 2, 4]  # c, then z of the next oldest


def test_lru_node_takes_whole_leaves():
    # Leaves: "cd" behind "ab" (split by the third prompt), "xyz", "ef".
    tree = tree_with("lru_node", "abcd", "xyz", "abef")
    assert tree.evict(1) == 2
    assert left(tree, "abcd", "xyz", "abef") == [2, 3, 4]
    assert tree.evict(1) == 3
    assert left(tree, "xyz", "abef") == [0, 4]
    # "ab" has one leaf left; that goes first, then "ab" itself.
    assert tree.evict(1) == 2
    assert tree.evict(1) == 2
    assert tree.cached_tokens == 0


def test_a_lookup_cuts_a_leaf_for_lru_node():
    tree = tree_with("lru_node", "abcdef")
    assert tree.match(tokens("abcd")) == 4
    assert tree.evict(1) == 2
    assert left(tree, "abcdef") == [4]


def test_lfu_takes_what_was_inserted_least_often():
    # "ab" was inserted three times, "xy" twice, "pq" once although it is the newest.
    tree = tree_with("lfu", "ab", "ab", "ab", "xy", "xy", "pq")
    tree.evict(1)
    assert left(tree, "ab", "xy", "pq") == [2, 2, 1]
    tree.evict(2)
    assert left(tree, "ab", "xy", "pq") == [2, 1, 0]


def test_a_lookup_does_not_count_for_lfu_but_breaks_its_ties():
    tree = tree_with("lfu", "ab", "ab", "xy", "pq")
    for _ in range(5):
        tree.match(tokens("xy"))
    tree.evict(1)
    assert left(tree, "ab", "xy", "pq") == [2, 2, 1]  # once each; "xy" was used last


def test_both_parts_of_a_split_edge_keep_their_count_and_their_age():
    # "abc" three times: its parts "ab" and "c" have 3 + 1 and 3 uses; "abd" has one, "xy" two.
    tree = tree_with("lfu", "abc", "abc", "abc", "abd", "xy", "xy")
    tree.evict(1)
    assert left(tree, "abc", "abd", "xy") == [3, 2, 2]
    tree.evict(1)
    assert left(tree, "abc", "xy") == [3, 1]
    # The same for `fifo`: "c" is the oldest leaf, then "x" that was cached between "abc" and "abd".
    tree = tree_with("fifo", "abc", "xy", "abd")
    tree.evict(1)
    assert left(tree, "abc", "xy", "abd") == [2, 2, 3]
    tree.evict(3)
    assert left(tree, "abc", "xy", "abd") == [2, 0, 2]


def test_the_upper_part_of_a_split_edge_keeps_its_count():
    # "ab" has 3 uses of the time before the split and one since, "c" and "pq" have 3. "c" was used longest ago.
    tree = tree_with("lfu", "abc", "abc", "abc", "ab", "pq", "pq", "pq")
    tree.evict(2)
    assert left(tree, "abc", "pq") == [2, 1]


def test_the_lower_part_of_a_split_edge_keeps_its_place():
    # Behind "ab" stand "cd", to place 4, and "xyz", to place 5: z, then d, y, c, x: the older first.
    tree = tree_with("length_aware", "abcd", "abxyz")
    for row in ([4, 4], [3, 4], [3, 3], [2, 3], [2, 2]):
        tree.evict(1)
        assert left(tree, "abcd", "abxyz") == row


def test_fifo_does_not_look_at_use():
    tree = tree_with("fifo", "ab", "xy")
    tree.insert(tokens("ab"))
    tree.match(tokens("ab"))
    tree.evict(1)
    assert left(tree, "ab", "xy") == [1, 2]


def test_length_aware_takes_the_latest_page_of_the_least_used():
    # All once but "mnopq" (twice, the longest). Ends: "abcd" 4, "xyz" 3, "st" 2. d goes, then of c and z, both third,
    # the one that was used longer ago: c, then z, and then b, y, t at place 2 by age.
    tree = tree_with("length_aware", "mnopq", "mnopq", "abcd", "xyz", "st")
    prompts = ("mnopq", "abcd", "xyz", "st")
    expected = [[5, 3, 3, 2], [5, 2, 3, 2], [5, 2, 2, 2], [5, 1, 2, 2], [5, 1, 1, 2], [5, 1, 1, 1]]
    for row in expected:
        assert tree.evict(1) == 1
        assert left(tree, *prompts) == row
    # Many at once are the same as one by one.
    tree = tree_with("length_aware", "mnopq", "mnopq", "abcd", "xyz", "st")
    assert tree.evict(5) == 5
    assert left(tree, *prompts) == expected[4]
    assert tree.evict(5) == 5
    assert left(tree, *prompts) == [4, 0, 0, 0]


def test_watermark_frees_a_batch_when_the_fill_passes_ninety_percent():
    # Capacity 100. 90 pages are no more than 90 %. One more would make 91: 91 - 85 = 6 go, and 85 are left.
    tree = RadixTree(100, eviction="watermark")
    tree.insert(range(90))
    assert tree.cached_tokens == 90
    tree.insert([1000])
    assert (tree.cached_tokens, tree.peek(range(90))) == (85, 84)
    # Up to 90 again nothing goes.
    tree.insert(range(2000, 2005))
    assert (tree.cached_tokens, tree.peek(range(90))) == (90, 84)
    # What is locked stays: of the batch of 7 there are 2 that may go, and they do.
    lock = tree.lock(range(84))
    other = tree.lock(range(2000, 2004))
    tree.insert(range(3000, 3002))
    assert (tree.cached_tokens, tree.peek([1000]), tree.peek(range(2000, 2005))) == (90, 0, 4)
    tree.unlock(lock)
    tree.unlock(other)


@pytest.mark.parametrize("eviction", ["lru", "lru_node", "lfu", "fifo", "length_aware", "watermark"])
def test_locked_paths_stay_whatever_the_kind(eviction):
    tree = tree_with(eviction, "abcd", "abef", "xyz")
    lock = tree.lock(tokens("abcd"))
    assert tree.evict(100) == 5
    assert left(tree, "abcd", "abef", "xyz") == [4, 2, 0]
    tree.unlock(lock)
    assert tree.evict(100) == 4


def test_an_unknown_kind_is_refused():
    with pytest.raises(InputError, match=r"RadixTree: eviction: expected one of lru, .*, got 'mru'"):
        RadixTree(10, eviction="mru")
