"""Long work: told of in the window's thread, ended when it is asked to, errors as lines."""

import threading

import pytest

from syncscope.app.gui.tasks import Tasks
from syncscope.sched_core.errors import FileError


@pytest.fixture
def tasks(qapp):
    tasks = Tasks()
    yield tasks
    tasks.end_all()
    assert tasks.running == []


class Told(list):
    """What was told, and in which threads."""

    def __init__(self):
        super().__init__()
        self.threads = set()

    def __call__(self, value):
        self.append(value)
        self.threads.add(threading.current_thread())


def test_a_result_comes_in_the_windows_thread_from_another(tasks, qtbot):
    told, failed, workers = Told(), Told(), []

    def work(progress):
        workers.append(threading.current_thread())
        return 7

    tasks.start("work", work, told, failed)
    qtbot.waitUntil(lambda: not tasks.running)
    assert (told, failed) == ([7], [])
    assert told.threads == {threading.main_thread()}
    assert workers != [threading.main_thread()]


def test_what_is_wrong_comes_as_a_line_and_a_defect_says_so(tasks, qtbot, capsys):
    told, failed = Told(), Told()

    def bad_file(progress):
        raise FileError("a.json: no spans")

    def defect(progress):
        raise ValueError("seven")

    tasks.start("open", bad_file, told, failed)
    qtbot.waitUntil(lambda: not tasks.running)
    tasks.start("open", defect, told, failed)
    qtbot.waitUntil(lambda: not tasks.running)
    assert failed == ["a.json: no spans", "open: ValueError: seven; please report this"]
    assert told == []
    assert "seven" in capsys.readouterr().err


def test_cancelled_work_ends_at_its_next_word_and_tells_nothing(tasks, qtbot):
    told, failed, go_on = Told(), Told(), threading.Event()
    words = []

    def work(progress):
        for i in range(1000):
            words.append(i)
            progress(i, 1000)
            go_on.wait(10)

    task = tasks.start("work", work, told, failed)
    qtbot.waitUntil(lambda: bool(words))
    task.cancel()
    go_on.set()
    qtbot.waitUntil(lambda: not tasks.running)
    assert len(words) <= 2
    assert (told, failed) == ([], [])


def test_work_of_the_same_title_takes_the_place_of_the_one_before(tasks, qtbot):
    told, go_on = Told(), threading.Event()

    def first(progress):
        go_on.wait(10)
        return "first"

    tasks.start("work", first, told, told)
    tasks.start("other", lambda progress: "other", told, told)
    tasks.start("work", lambda progress: "second", told, told)
    go_on.set()
    qtbot.waitUntil(lambda: not tasks.running)
    assert sorted(told) == ["other", "second"]


def test_progress_is_seen_while_the_work_goes_on(tasks, qtbot):
    seen, go_on = [], threading.Event()
    tasks.changed.connect(lambda: seen.extend(each.position for each in tasks.running))

    def work(progress):
        progress(3, 10)
        go_on.wait(10)

    tasks.start("work", work, Told(), Told())
    qtbot.waitUntil(lambda: (3, 10) in seen)
    go_on.set()


def test_the_end_of_all_waits_for_all(tasks):
    told, ended = Told(), []

    def work(progress):
        while not progress.cancelled.wait(0.001):
            pass
        ended.append(True)

    for title in "abc":
        tasks.start(title, work, told, told)
    tasks.end_all()
    assert (len(ended), tasks.running, told) == (3, [], [])


def test_work_begun_by_what_is_told_is_not_lost(tasks, qtbot):
    told = Told()

    def again(value):
        tasks.start("work", lambda progress: value + 1, told, told)

    tasks.start("work", lambda progress: 1, again, told)
    qtbot.waitUntil(lambda: told == [2])


def test_a_thousand_pieces_of_work_are_all_told_of(qtbot):
    told = Told()
    for i in range(1000):
        tasks = Tasks()
        tasks.start("work", lambda progress, i=i: i, told, told)
        if i % 3:
            tasks.running[0].join(5)
            tasks._look()
        else:
            qtbot.waitUntil(lambda tasks=tasks: not tasks.running)
    assert told == list(range(1000))
