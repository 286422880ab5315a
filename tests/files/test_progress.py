"""Progress: a bar on a terminal, lines or nothing elsewhere."""

import io
import sys

from cacheenv.files.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def terminal(monkeypatch):
    """Put in place in the test itself: between its set-up and its call pytest sets `sys.stderr` anew."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    return screen


def test_lines_every_tenth_elsewhere(capsys):
    progress = Progress(2000, "train", "dec", start=500, steps="decisions", scaled=True)
    for count in range(500, 2001, 50):
        if count == 1000:
            progress.note("goodput 3")
        progress.advance_to(count)
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" of ")[0] for line in lines] == [f"cacheenv: {count:,}" for count in range(500, 2001, 200)]
    assert lines[0].startswith("cacheenv: 500 of 2,000 decisions (25 %), 0 a second")
    assert lines[-1].endswith(" a second, goodput 3")


def test_nothing_elsewhere_without_a_word_for_lines(capsys):
    progress = Progress(3, "bench", "run")
    progress.advance()
    progress.close()
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal(monkeypatch):
    screen = terminal(monkeypatch)
    progress = Progress(4, "bench", "run")
    progress.note("random on kimi-chat")
    for _ in range(3):
        progress.advance()
    progress.advance_to(9)
    progress.close()
    shown = screen.getvalue()
    assert "bench" in shown
    assert "4/4" in shown
    assert "random on kimi-chat" in shown
    assert "cacheenv:" not in shown


def test_quiet_is_quiet(monkeypatch):
    screen = terminal(monkeypatch)
    progress = Progress(4, "bench", "run", steps="runs", quiet=True)
    progress.advance_to(4)
    progress.close()
    assert screen.getvalue() == ""
