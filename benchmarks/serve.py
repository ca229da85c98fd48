"""How much `esad serve` answers: requests/s, p99, what merging brings, how fair a crowd is served, what a stop loses.

The service is a process of its own, the clients are another one: this. Each client keeps a connection and asks again
as soon as it is answered. Beside the crowd a third process sends one row at a time, as CSV, which is read in the same
turns as the crowd's bodies. Run: python benchmarks/serve.py [--seconds 4]. Results: benchmarks/results/serve.json.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results" / "serve.json"
N_COLUMNS = 30
CASES = [(1, 1), (32, 1), (1, 1000), (4, 1000)]  # clients, rows of a request
CROWD = (200, 1000)
ROUNDS = 3  # of all cases; the best of each counts, since others use the machine too


@dataclass
class Tally:
    seconds: list[float] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    answered: list[int] = field(default_factory=list)  # how often each client was

    def count(self, what: str) -> None:
        self.statuses[what] = self.statuses.get(what, 0) + 1


def request(rows: np.ndarray, media_type: str = "application/json") -> bytes:
    named = [{f"c{i}": round(v, 4) for i, v in enumerate(row)} for row in rows.tolist()]
    if media_type == "text/csv":
        body = "\n".join([",".join(named[0]), *(",".join(map(str, row.values())) for row in named)]).encode()
    else:
        body = json.dumps({"rows": named}).encode()
    head = f"POST /score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, bool, bytes]:
    """Status, whether the connection stays open, and the body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length:")[2].partition("\r\n")[0])
    return int(head[9:12]), "connection: close" not in head, await reader.readexactly(length)


async def client(port: int, sent: bytes, n_rows: int, until: float, tally: Tally) -> None:
    """Ask until the time is over or the service is gone; every request ends up in the tally."""
    number = len(tally.answered)
    tally.answered.append(0)
    while time.perf_counter() < until:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            tally.count("refused before sending")
            return
        stays = True
        try:
            while stays and time.perf_counter() < until:
                began = time.perf_counter()
                writer.write(sent)
                try:
                    status, stays, body = await answer(reader)
                except (OSError, asyncio.IncompleteReadError):
                    tally.count("lost")
                    return
                if status == 200 and len(json.loads(body)["rows"]) != n_rows:
                    tally.count("wrong")
                tally.count(str(status))
                if status == 200:
                    tally.seconds.append(time.perf_counter() - began)
                    tally.answered[number] += 1
        finally:
            writer.close()


def bodies(n_clients: int, n_rows: int, media_type: str = "application/json") -> list[bytes]:
    """What each client sends; for a crowd it takes seconds to make."""
    rng = np.random.default_rng(0)
    return [request(rng.normal(size=(n_rows, N_COLUMNS)), media_type) for _ in range(n_clients)]


def load(port: int, sent: list[bytes], n_rows: int, seconds: float) -> Tally:
    tally = Tally()
    until = time.perf_counter() + seconds

    async def crowd() -> None:
        await asyncio.gather(*(client(port, one, n_rows, until, tally) for one in sent))

    asyncio.run(crowd())
    return tally


def start(model: Path) -> tuple[subprocess.Popen, int]:
    command = [sys.executable, "-m", "esad", "serve", str(model), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    port = int(process.stdout.readline().rpartition(":")[2])
    return process, port


def train(folder: Path) -> Path:
    import pyarrow as pa

    from esad import ESAD

    X = np.random.default_rng(0).normal(size=(2000, N_COLUMNS))
    path = folder / "model.esad"
    ESAD(n_epochs=2, random_state=0).fit(pa.table({f"c{i}": X[:, i] for i in range(N_COLUMNS)})).save(path)
    return path


def cpu_seconds(process: subprocess.Popen) -> float:
    """Processor time of the service so far, which a busy machine does not stretch as much."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(process: subprocess.Popen, port: int, sent: list[bytes], n_rows: int, seconds: float) -> dict[str, object]:
    before = cpu_seconds(process)
    tally = load(port, sent, n_rows, seconds)
    cpu = cpu_seconds(process) - before
    return described(tally, len(sent), n_rows, seconds) | {
        "cpu_ms_per_request": round(1e3 * cpu / len(tally.seconds), 3)
    }


def described(tally: Tally, n_clients: int, n_rows: int, seconds: float) -> dict[str, object]:
    times = np.array(tally.seconds)
    return {
        "clients": n_clients,
        "rows_per_request": n_rows,
        "requests_per_s": round(len(times) / seconds, 1),
        "rows_per_s": round(len(times) * n_rows / seconds, 1),
        "p50_ms": round(1e3 * float(np.median(times)), 2),
        "p99_ms": round(1e3 * float(np.quantile(times, 0.99)), 2),
        "answers_per_client": [min(tally.answered), max(tally.answered)],
        "busy_ratio": round(tally.statuses.get("503", 0) / sum(tally.statuses.values()), 4),
        "statuses": tally.statuses,
    }


def crowded(process: subprocess.Popen, port: int, seconds: float) -> list[dict[str, object]]:
    """A crowd that sends much, and a few who send little."""
    sent = bodies(*CROWD)
    beside = [sys.executable, __file__, "--seconds", str(seconds), "--beside", str(port)]
    few = subprocess.Popen(beside, stdout=subprocess.PIPE, text=True)
    crowd = measured(process, port, sent, CROWD[1], seconds)
    return [crowd, json.loads(few.communicate()[0])]


def stopped(model: Path) -> dict[str, object]:
    """Tell the service to stop while 32 clients ask."""
    process, port = start(model)
    told = subprocess.Popen([sys.executable, "-c", f"import os,time; time.sleep(1.5); os.kill({process.pid}, 15)"])
    tally = load(port, bodies(32, 1), 1, 30.0)
    told.wait()
    return {"statuses": tally.statuses, "exit_code": process.wait(30)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--beside", type=int, metavar="PORT", help="be the few who send little")
    options = parser.parse_args()
    seconds = options.seconds
    if options.beside:
        print(json.dumps(described(load(options.beside, bodies(4, 1, "text/csv"), 1, seconds), 4, 1, seconds)))
        return
    with tempfile.TemporaryDirectory() as folder:
        model = train(Path(folder))
        process, port = start(model)
        try:
            load(port, bodies(4, 1), 1, 0.5)
            rounds = [
                [measured(process, port, bodies(*case), case[1], seconds) for case in CASES] for _ in range(ROUNDS)
            ]
            found = [max(same, key=lambda case: case["rows_per_s"]) for same in zip(*rounds, strict=True)]
            crowd = crowded(process, port, 4 * seconds)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
        for case in [*found, *crowd]:
            print(json.dumps(case))
        merged = found[1]["rows_per_s"] / found[0]["rows_per_s"]
        stop = stopped(model)
    print(f"32 clients get {merged:.1f} times the rows/s of one; stop under load: {stop}")
    result = {
        "columns": N_COLUMNS,
        "cores": os.cpu_count(),
        "cases": found,
        "merging": round(merged, 2),
        "crowd": crowd,
        "stop": stop,
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
