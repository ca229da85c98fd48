"""The store: whole results or none, claims of the living, several runs at once, damage told apart."""

import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from contextlib import closing

import pytest

from esad.bench import store as store_module
from esad.bench.store import Result, ResultStore
from esad.errors import DataFileError, OutputError


def result(name="a", **changes):
    values = {
        "cell": name,
        "description": {"method": "iforest", "seed": 1},
        "auc": 0.9,
        "ap": 0.5,
        "fit_seconds": 1.0,
        "score_seconds": 0.1,
        "n_train": 10,
        "n_test": 5,
        "code": "0",
        "data": "0",
        "curves": {"loss": [1.0, 0.5]},
    }
    return Result(**values | changes)


def test_a_result_comes_back_as_it_went_in(tmp_path):
    with ResultStore(tmp_path / "s.db") as store:
        store.put(result())
    with ResultStore(tmp_path / "s.db") as store:
        (found,) = store.results()
        assert store.finished_cells() == {"a"}
    assert found.description == {"method": "iforest", "seed": 1}
    assert found.curves == {"loss": [1.0, 0.5]}
    assert found.machine["python"]
    assert found.finished.endswith("Z")


def test_a_cell_is_claimed_once_while_its_process_lives(tmp_path):
    with ResultStore(tmp_path / "s.db") as one, ResultStore(tmp_path / "s.db") as two:
        assert one.claim("a")
        assert not two.claim("a")
        one.release()
        assert two.claim("a")
        two.put(result("a"))
        assert not one.claim("a")


def test_the_claim_of_a_dead_process_is_free(tmp_path):
    script = f"from esad.bench.store import ResultStore; assert ResultStore({str(tmp_path / 's.db')!r}).claim('a')"
    subprocess.run([sys.executable, "-c", script], check=True)
    with ResultStore(tmp_path / "s.db") as store:
        assert store.claim("a")


def test_the_claim_of_another_machine_holds_until_it_is_stale(tmp_path, monkeypatch):
    with ResultStore(tmp_path / "s.db") as store:
        monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
        assert store.claim("a")
        monkeypatch.undo()
        assert not store.claim("a")
        monkeypatch.setattr(store_module, "STALE_SECONDS", 0.0)
        assert store.claim("a")


def test_stores_of_two_machines_merge(tmp_path):
    with ResultStore(tmp_path / "one.db") as one, ResultStore(tmp_path / "two.db") as two:
        one.put(result("a"))
        two.put(result("a", auc=0.1))
        two.put(result("b"))
        assert one.merge(two.results()) == 1
        assert {found.cell: found.auc for found in one.results()} == {"a": 0.9, "b": 0.9}


def test_what_is_no_store_is_refused(tmp_path):
    (tmp_path / "text.db").write_text("not a database, whatever its name says" * 50)
    with pytest.raises(DataFileError, match="not a store"):
        ResultStore(tmp_path / "text.db")
    with pytest.raises(OutputError, match="is a folder"):
        ResultStore(tmp_path)
    with pytest.raises(OutputError, match="cannot be opened"):
        ResultStore(tmp_path / "no" / "folder.db")
    newer = tmp_path / "newer.db"
    with sqlite3.connect(newer) as database:
        database.execute("pragma user_version = 99")
    with pytest.raises(DataFileError, match="newer version"):
        ResultStore(newer)


@pytest.mark.parametrize(
    "damage",
    [
        "update results set finished = cast(x'ff' as text)",
        "pragma writable_schema = 1; update sqlite_schema set sql = cast(x'637265ff' as text) where name = 'claims'",
    ],
)
def test_text_that_cannot_be_decoded_is_damage(tmp_path, damage):
    path = tmp_path / "results.db"
    with ResultStore(path) as store:
        store.put(result())
    with closing(sqlite3.connect(path)) as database:
        database.executescript(damage)
        database.commit()
    with pytest.raises(DataFileError, match="damaged"), ResultStore(path) as store:
        store.results()


def test_a_store_that_cannot_be_written_is_not_called_damaged(tmp_path):
    with ResultStore(tmp_path / "results.db") as store:
        store._database.execute("pragma query_only = 1")
        with pytest.raises(OutputError, match="cannot be used: attempt to write a readonly database"):
            store.put(result())


def test_a_kill_at_any_moment_leaves_whole_results(tmp_path):
    """A process that writes without pause is killed twenty times; what it said was kept is there, and readable."""
    path = tmp_path / "s.db"
    script = textwrap.dedent(f"""
        import sys
        from esad.bench.store import Result, ResultStore
        values = {{"fit_seconds": 1.0, "score_seconds": 0.1, "n_train": 10, "n_test": 5, "code": "0", "data": "0"}}
        store = ResultStore({str(path)!r})
        for number in range(100000):
            name = sys.argv[1] + "-" + str(number)
            store.claim(name)
            curves = {{"loss": [float(number)] * 2000}}
            store.put(Result(name, {{}}, 0.9, 0.5, **values, machine={{}}, curves=curves))
            print(name, flush=True)
    """)
    acknowledged = []
    for attempt in range(20):
        command = [sys.executable, "-c", script, str(attempt)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            acknowledged.append(process.stdout.readline().strip())
            time.sleep(0.003 * attempt)
            process.send_signal(signal.SIGKILL)
            acknowledged += process.stdout.read().split("\n")[:-1]  # the last one may be cut
    with ResultStore(path) as store:
        assert set(acknowledged) <= store.finished_cells()
        assert all(len(found.curves["loss"]) == 2000 for found in store.results())
        assert store._database.execute("pragma integrity_check").fetchone() == ("ok",)
