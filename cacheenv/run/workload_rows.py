"""Which row of the workload tables each world reads; worlds with the same workload share one."""

from __future__ import annotations

import copy

import numpy as np

from cacheenv.workload import Workload


class WorkloadRows:
    """Rows of the workload tables, and the workloads that stand in them.

    Args:
        worlds: Number of worlds.

    Attributes:
        row_of: Row of each world, int64 (worlds,).
    """

    def __init__(self, worlds: int) -> None:
        self.row_of = np.zeros(worlds, np.int64)
        self._placed = np.zeros(worlds, np.bool_)
        self._stored: list[Workload | None] = [None]

    @property
    def rows(self) -> int:
        """Rows that the tables need."""
        return len(self._stored)

    def of(self, index: int) -> Workload | None:
        """The workload of world `index`, None before its first episode."""
        return self._stored[self.row_of[index]] if self._placed[index] else None

    def place(self, index: int, workload: Workload) -> tuple[int, bool]:
        """Gives world `index` the row of a workload: (row, whether the workload has still to be stored there).

        A row is shared by all worlds with that object; a row that nobody else reads is used again.
        """
        self._placed[index] = False
        row = self._row_with(workload)
        is_new = row < 0
        if is_new:
            row = self._unread_row()
            self._stored[row] = workload
        self.row_of[index] = row
        self._placed[index] = True
        return row, is_new

    def forget(self, row: int) -> None:
        """The workload of a row could not be stored."""
        self._stored[row] = None
        self._placed[self.row_of == row] = False

    def _row_with(self, workload: Workload) -> int:
        return next((row for row, stored in enumerate(self._stored) if stored is workload), -1)

    def _unread_row(self) -> int:
        read = set(self.row_of[self._placed].tolist())
        row = next((row for row in range(self.rows) if row not in read), self.rows)
        if row == self.rows:
            self._stored.append(None)
        return row

    def copy(self) -> WorkloadRows:
        """An independent copy; the workloads themselves never change and are shared."""
        twin = copy.copy(self)
        twin.row_of, twin._placed, twin._stored = self.row_of.copy(), self._placed.copy(), list(self._stored)
        return twin
